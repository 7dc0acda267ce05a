"""Orders, as what an instance and its runs do in Python. The tests of the examples run it."""

import random
import time
import uuid
from datetime import timedelta

import skep


def on_start():
    skep.sql("CREATE TABLE sold (item TEXT, cents INTEGER, receipt TEXT)")
    skep.shared.set({"orders": 0})


def stock(item):
    return skep.storage.get("stock/" + item, 10)


def _take(item, count):
    left = stock(item) - count
    if left < 0:
        raise skep.PermanentError(f"only {left + count} of {item} are left")
    skep.storage.set("stock/" + item, left)
    return count


def _drawn():
    return [list({f"w{i}" for i in range(20)}), random.random(), str(uuid.uuid4()), time.time()]


def fulfil(order):
    """A run: it may take days."""
    item, cents = order["item"], order["cents"]
    skep.step("reserve", lambda: _take(item, order["count"]), rollback=lambda n: _take(item, -n))
    before = _drawn()
    skep.storage.set("drawn", before)  # asked again on replay: it must be the same
    skep.emit("approval.wanted", order)
    verdict = skep.wait_for_event("approval", timeout=timedelta(days=3))
    if not verdict["ok"]:
        raise ValueError(f"{verdict['by']} turned the order down")
    pay = skep.agent("services")
    receipt = skep.step("charge", lambda: pay.charge(cents), retries=2, delay=1, rollback=pay.refund)
    skep.sleep(order.get("wait", 2))
    skep.sql("INSERT INTO sold VALUES (?, ?, ?)", item, cents, receipt)
    skep.shared.set({"orders": len(skep.sql("SELECT * FROM sold"))})
    print("fulfilled", item)
    same = skep.storage.get("drawn") == before
    return {"receipt": receipt, "by": verdict["by"], "same": same, "sold": skep.sql("SELECT item, cents FROM sold")}


async def parts(keys):
    """A run that waits for three instances and an agent at once."""
    first, *rest = await skep.gather(
        skep.Call("services", "charge", 8), *(skep.Call("services", "ask", "/" + k, key=k) for k in keys)
    )
    return [first, *rest]


def nested(item):
    """A run that begins another, and waits for it."""
    run = skep.start_run("slowly", item)
    return [run.result(), skep.self().key, run.id != skep.self().run]


def slowly(item):
    skep.sleep(1.5)
    return item.upper()


def remind(text):
    """A turn."""
    return skep.schedule(timedelta(seconds=1), "ring", {"text": text}, name=text).name


def ring(payload):
    skep.emit("rang", payload)
    skep.broadcast(payload)


def on_connect(event):
    socket = skep.Socket(event["socket"])
    socket.attach({"n": 1})
    socket.send(f"welcome to {skep.self().key}")


def on_socket_message(event):
    who = next(s for s in skep.sockets() if s.id == event["socket"]["id"])
    who.send({"echo": event["text"], "attached": who.attachment})


def both():
    """Two instances and a child of it."""
    other = skep.agent("orders", "other")
    part = skep.child("orders", "part")
    return [other.stock("tea"), part.remind("later"), [a.name for a in skep.alarms()], skep.cancel_alarm("none")]
