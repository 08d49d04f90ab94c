"""Where figures go."""

from pathlib import Path

from app.local.errors import LocalServiceError

STDOUT = Path("-")


def write(text: str, file: Path) -> None:
    """To the file, or to standard output; raises LocalServiceError, one sentence, when it can't be written."""
    if file == STDOUT:
        print(text, end="")
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LocalServiceError(f"{file} can't be written ({error.strerror}).") from None
