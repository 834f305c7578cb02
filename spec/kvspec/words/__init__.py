"""What every word of the language means, in plain text: for the editor, for ``kvspec explain`` and for messages.

``verbs``, ``expectations``, ``document`` and ``terms`` have the texts; ``lookup`` finds them by word.
"""
