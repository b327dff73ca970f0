"""The collector of a shuffle: codes without ids, published in random order once they are enough."""

from __future__ import annotations

from pathlib import Path

from dpindex.base.errors import InputError
from dpindex.index.private_index import PrivateIndex
from dpindex.integrations.collector import Acceptor, Submission
from dpindex.storage.shuffled_file import Shuffle, ShuffledFile

__all__ = ["LOG_NAME", "ShuffleCollector"]

LOG_NAME = ".shuffle"
"""The file of accepted codes, in the directory of the index."""


class ShuffleCollector(Acceptor):
    """Collects codes for one shuffle, and publishes them at the end of the block.

    They are published once there are as many as was promised; before that the file of accepted
    codes is kept, and a later collector goes on with it. Receipts of submissions are kept in memory
    alone.

    Parameters
    ----------
    index : PrivateIndex
        Without codes; it is changed by nobody else.
    folder : Path
        Where it lies.
    shuffle : Shuffle

    Raises
    ------
    InputError
        If the index holds codes, no shuffle amplifies its guarantee, or the file is damaged or was
        made for another shuffle; at the end of the block, if something could not be written.
    """

    def __init__(self, index: PrivateIndex, folder: Path, shuffle: Shuffle) -> None:
        path = folder / LOG_NAME
        super().__init__(path)
        self.searcher = index
        self.shuffle = shuffle
        self._promised = shuffle
        self._index = index
        self._folder = folder
        shuffle.guarantee(index.spec)
        if index.is_shuffled:
            path.unlink(missing_ok=True)  # a process that published these died before it did so
        if len(index):
            raise InputError(
                f"{folder} holds {len(index)} codes: a shuffle is published once; collect into an "
                f"index without codes."
            )
        self._file = ShuffledFile(path, index.spec.format, shuffle)

    def _store(self, new: list[Submission]) -> None:
        format_ = self.searcher.spec.format
        stored = format_.concatenate([submission.codes.stored for submission in new])
        self._file.append(format_.codes(stored))

    def _tend(self) -> None:
        pass

    def _finish(self) -> None:
        if len(self._file) >= self._promised.codes:
            self._index.add_shuffled(self._file.codes(), self._promised.delta)
            self._index.save(self._folder)
            self._file.remove()

    def _close(self) -> None:
        self._file.close()
