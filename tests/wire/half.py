"""A system of nothing but `create` and `close` that knows nothing of kvspec, with one mistake in its manners: its argument."""

import json
import sys
import time

MISTAKE = sys.argv[1]
state = {"greeted": False, "requests": None, "shown": 0, "built": False}


def facts():
    shown = dict(state["requests"])
    if MISTAKE == "shows":
        shown["left"] = one()
    if MISTAKE == "changes":
        state["shown"] += 1
    return {"requests": shown, "free": {"gpu": 7 if state["shown"] > 1 else 8}}


def one():
    return {"status": "suspended", "phase": "prefill", "capacity": 0, "history": 0, "blocks": {"main": []}}


def hello(message):
    state["greeted"] = True
    if MISTAKE == "strict" and set(message) - {"id", "message", "protocol", "kvspec"}:
        return {"wrong": "too many keys"}
    unobserved = ["payloads", "order", "tree", "eviction", "counters", "events", "versions", "device", "staging"]
    return {"protocol": 1, "name": "half", "capabilities": ["create", "close"], "unobserved": unobserved}


def apply(message):
    verb, name = message["verb"], message["arguments"].get("request")
    if verb == "create":
        state["requests"][name] = one()
        return {"value": 0}
    if verb == "close" and name in state["requests"]:
        state["requests"][name]["status"] = "closed"
        return {}
    if verb == "close":
        if MISTAKE == "half":
            state["shown"] = 2
        return {} if MISTAKE == "no error" else {"error": "logic_error" if MISTAKE == "other error" else "out_of_range"}
    return {} if MISTAKE == "any verb" else {"wrong": f"no verb {verb}"}


def answer(message):
    kind = message.get("message")
    if not state["greeted"] and kind != "hello" and MISTAKE != "before hello":
        return {"wrong": "expected hello"}
    if kind == "hello":
        return hello(message)
    if kind == "manager" and message.get("manager"):
        if MISTAKE != "keeps" or state["requests"] is None:
            state["requests"] = {}
        state.update(shown=0, built=True)
        return {}
    if kind in ("apply", "observe", "close"):
        if state["requests"] is None:
            lax = MISTAKE in ("early", "before hello") or (MISTAKE == "twice" and state["built"])
            return {} if lax and kind != "apply" else {"wrong": "no manager"}
        if kind == "apply":
            return apply(message)
        if kind == "observe":
            return {"facts": facts()}
        state["requests"] = None
        return {}
    return {"wrong": "expected another message"}


for line in sys.stdin:
    try:
        given = json.loads(line)
        number = given["id"]
    except (ValueError, TypeError, KeyError):
        if MISTAKE == "no json":
            sys.exit(1)
        print(json.dumps({"id": None, "wrong": "no message"}), flush=True)
        continue
    said = answer(given)
    if MISTAKE == "bad message" and given.get("message") is None:
        number = 0
    print(json.dumps({"id": number, **said}), flush=True)
if MISTAKE == "stays":
    time.sleep(60)
sys.exit(4 if MISTAKE == "code" else 0)
