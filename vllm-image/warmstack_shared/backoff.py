"""How long to wait before the next try, and when to stop trying.

In: what happened. Out: seconds, or "enough". Refuses to know: what is tried, and the time of day.
"""

from dataclasses import dataclass

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 30.0


@dataclass(kw_only=True)
class BackOff:
    """Counts failures in a row. `limit` failures are enough."""

    limit: int
    failures: int = 0

    def failed(self) -> None:
        self.failures += 1

    def succeeded(self) -> None:
        self.failures = 0

    @property
    def exhausted(self) -> bool:
        return self.failures >= self.limit

    @property
    def seconds(self) -> float:
        """1, 2, 4 … up to 30. After a success it is 1 too: a child that dies right after it is not restarted
        hot.
        """
        return float(min(FIRST_SECONDS * 2 ** max(0, self.failures - 1), LONGEST_SECONDS))
