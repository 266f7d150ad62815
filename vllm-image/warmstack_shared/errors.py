"""The one family of errors that a user sees as a sentence. Everything else is a bug and shows its
traceback.
"""

from typing import NoReturn


class Failure(Exception):
    """`sentence` says what is wrong, `hint` what to do, `exit_code` is 1, 2 or 3 as everywhere in
    warmstack.
    """

    def __init__(self, sentence: str, *, hint: str | None = None, exit_code: int = 2) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"error: {self.sentence}" + (f"\nhint: {self.hint}" if self.hint else "")


def wrong_setting(name: str, problem: str) -> NoReturn:
    raise Failure(f"{name}: {problem}", hint="the plan writes it: make render and make up", exit_code=2)
