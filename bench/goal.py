"""What a benchmark should find."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure that should be at least, or at most, some other."""

    what: str
    value: float
    bound: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether it is."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound
