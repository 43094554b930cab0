"""Text with an id, so that code does not depend on the wording."""


class Message(str):
    """Text for people with an id for code; the wording may change.

    A string, so that it passes wherever plain ones do: into JSON, tables, and lists of notes.

    Attributes:
        id: a stable identifier such as ``no_gpu``.
    """

    id: str

    def __new__(cls, text: str, id: str) -> "Message":
        made = super().__new__(cls, text)
        made.id = id
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.id


def id_of(text: str) -> str:
    """The id of a message; empty for plain text."""
    return text.id if isinstance(text, Message) else ""


def reworded(old: str, new: str) -> str:
    """The new text with the id of the old one, for messages that are masked or shortened."""
    return Message(new, old.id) if isinstance(old, Message) else new
