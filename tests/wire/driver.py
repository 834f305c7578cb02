"""A system that knows nothing of kvspec: it makes requests and shows them, and does wrong what its first argument says.

Its second argument, a folder, gets a file for each process, named like it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

MODE, FOLDER = sys.argv[1], Path(sys.argv[2])
FREE = 4


def answer(number, **facts):
    print(json.dumps({"id": number, **facts}), flush=True)


def ill(number):
    """What goes wrong in the first operation."""
    print(f"this is {MODE}", file=sys.stderr, flush=True)
    if MODE == "exits":
        sys.exit(3)
    if MODE == "exits within a line":
        os.write(1, b'{"id": 3, "val')
        sys.exit(0)
    if MODE == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if MODE in ("hangs", "hangs with a child"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if MODE == "hangs with a child":
            child = subprocess.Popen([sys.executable, "-c", "import time\nwhile True: time.sleep(1)"])
            (FOLDER / str(child.pid)).touch()
        (FOLDER / "hangs").touch()
        while True:
            time.sleep(1)
    if MODE == "closes its output":
        os.close(1)
        time.sleep(60)
    if MODE == "prints":
        print("creating a request", flush=True)
    if MODE == "prints much":
        print("x" * 10_000_000, flush=True)
    if MODE == "no object":
        print("[1]", flush=True)
    if MODE == "wrong id":
        answer(number + 1)
    if MODE == "text as value":
        answer(number, value="yes")
    if MODE == "misspelt key":
        answer(number, valeu=0)
    if MODE == "unknown error":
        answer(number, error="no_memory")
    if MODE == "raises":
        answer(number, failed="OutOfMemory: 0 of 4 slots", lines=["manager.cc:17 in grow"])
    if MODE == "limit":
        answer(number, limit="no card")
    if MODE == "unsupported":
        answer(number, unsupported="more than a block")
    if MODE == "wrong":
        answer(number, wrong="what is a request?")


def facts(requests):
    free = {"gpu": "four" if MODE == "text as number" and requests else FREE}
    shown = {"requests": requests, "free": free}
    if MODE == "misspelt fact" and requests:
        shown["reqests"] = {}
    return shown


def main():
    (FOLDER / str(os.getpid())).touch()
    requests, there = {}, False
    for line in sys.stdin:
        try:
            message = json.loads(line)
            number, kind = message["id"], message.get("message")
        except (ValueError, TypeError, KeyError):
            number, kind = None, "nothing"
        if kind == "hello":
            hello = {"protocol": 2 if MODE == "another version" else 1, "name": "driver", "capabilities": ["create", "close"]}
            hello["unobserved"] = ["payloads", "order", "tree", "eviction", "counters", "events", "versions", "device", "staging"]
            hello["arguments"] = {"create": ["requst" if MODE == "misspelt argument" else "request"]}
            if MODE == "misspelt aspect":
                hello["unobserved"].append("speed")
            answer(number, **hello)
        elif kind == "manager" and "manager" in message and message["manager"].get("levels"):
            if MODE == "cannot build":
                answer(number, failed="NoDevice: there is no card")
                continue
            requests, there = {}, True
            answer(number, device="sim")
        elif kind == "apply" and there and message["verb"] in ("create", "close"):
            name = message["arguments"]["request"]
            if MODE != "right" and (MODE != "exits once" or not (FOLDER / "once").exists()):
                (FOLDER / "once").touch()
                if MODE == "exits once":
                    sys.exit(3)
                if MODE not in ("text as number", "misspelt fact", "reads slowly"):
                    ill(number)
                    if MODE != "prints":
                        continue
            if message["verb"] == "close":
                answer(number, **({} if name in requests else {"error": "out_of_range", "text": f"no request {name}"}))
                continue
            requests[name] = {"status": "suspended", "phase": "prefill", "capacity": 0, "history": 0, "blocks": {"main": []}}
            answer(number, value=0)
        elif kind == "observe" and there:
            answer(number, facts=facts(requests))
        elif kind == "close" and there:
            there = False
            answer(number)
        else:
            answer(number, wrong=f"not understood here: {kind}")


main()
