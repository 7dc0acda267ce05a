"""A small agent in Python. See the README for how to push and call it."""

import skep


def greet(person):
    name = person.get("name", "").strip()
    if not name:
        raise ValueError("whom shall I greet? give a name")
    print("greeting", name)
    return {"text": f"{skep.config.get('word', 'Hello')}, {name}!"}


def countdown(start):
    """Emits an event for each number on its way to zero."""
    for n in range(start, 0, -1):
        skep.emit("tick", n)
    return "liftoff"


async def research(topics):
    """Asks another agent about every topic, all at once."""
    return await skep.gather(*(skep.Call("text-tool", "slug", t) for t in topics))
