"""A store of LangChain that fails when it is told to."""

from langchain_core.stores import InMemoryStore

STAGES = ("before", "within", "after")
"""When a call fails: before it changed anything, after one key, or when all is done."""


class FailingStore(InMemoryStore):
    """Keeps values in memory; calls are counted down until one fails, once."""

    def __init__(self):
        super().__init__()
        self.calls_left = 0
        self.stage = "before"

    def fail(self, calls=1, stage="before"):
        """Let that call from now on fail."""
        self.calls_left = calls
        self.stage = stage

    def mget(self, keys):
        return self._called(super().mget, keys)

    def mset(self, key_value_pairs):
        self._called(super().mset, key_value_pairs)

    def mdelete(self, keys):
        self._called(super().mdelete, keys)

    def _called(self, method, items):
        self.calls_left -= 1
        fails = self.calls_left == 0
        if fails and self.stage == "before":
            raise ConnectionError("the store does not answer")
        if fails and self.stage == "within":
            items = items[:1]
        answer = method(items)
        if fails:
            raise ConnectionError("the store does not answer")
        return answer
