"""Which engine a new request goes to.

In: names of engines, an order, who is ready. Out: a name, a new order, the text of the file that keeps it.
The order is a preference and no ban: a later engine is taken when no earlier one is ready. Refuses to know
sockets and files.
"""

import json
from collections.abc import Callable, Iterable, Sequence

Order = tuple[str, ...]


class WrongOrder(Exception):
    """An order that cannot be; the text is one line for a person."""


def choose(order: Order, is_ready: Callable[[str], bool]) -> str | None:
    """The first that is ready; None when there is none."""
    return next((name for name in order if is_ready(name)), None)


def reorder(known: Sequence[str], wanted: Sequence[str]) -> Order:
    """The wanted names first, the others behind them as they were. Raises WrongOrder."""
    if not wanted:
        raise WrongOrder(f"no engine is named; there are {', '.join(known)}")
    for name in wanted:
        if name not in known:
            raise WrongOrder(f"there is no engine {name}; there are {', '.join(known)}")
        if wanted.count(name) > 1:
            raise WrongOrder(f"{name} is named twice")
    return (*wanted, *_without(known, wanted))


def route_text(order: Order) -> str:
    return json.dumps({"schema": 1, "order": order}) + "\n"


def restored(known: Sequence[str], text: str) -> Order:
    """The order of a file that an earlier gateway wrote; engines it names and nobody knows are left out.

    Raises WrongOrder when the text is none of `route_text`.
    """
    try:
        kept = json.loads(text)["order"]
        names = [name for name in kept if name in known]
    except (ValueError, LookupError, TypeError) as error:
        raise WrongOrder(f"is no kept order: {error}") from None
    return reorder(known, names) if names else tuple(known)


def _without(names: Iterable[str], others: Sequence[str]) -> Order:
    return tuple(name for name in names if name not in others)
