"""A sentence for people that code can tell from others."""


class Message(str):
    """Text with an id. Code goes by the id, so that the words may change.

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
    """The new text, with the old one's id where it has one: of a message that is masked or shortened."""
    return Message(new, old.id) if isinstance(old, Message) else new
