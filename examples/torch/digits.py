"""What the examples beside share: the images, a small net, and how it is judged."""

import gzip
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

_FILE = Path("digits/digits.csv.gz")
# From a checkout; else where Ropewalk was installed.
_FOLDERS = [Path(__file__).resolve().parents[2] / "data", Path(sys.prefix) / "share/ropewalk",
            Path("/usr/local/share/ropewalk"), Path("/usr/share/ropewalk")]


class Digits:
    """1797 grey images of 8x8, their labels, and a fifth of them held out, on every rank alike."""

    def __init__(self) -> None:
        pixels, labels = _read()
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(8))
        held_out = torch.arange(len(labels)) % 5 == 0
        images = torch.tensor(pixels / 16, dtype=torch.float32).view(-1, 1, 8, 8)[order]
        labels = torch.tensor(labels, dtype=torch.int64)[order]
        self.images, self.labels = images[~held_out], labels[~held_out]
        self.held_out = images[held_out], labels[held_out]

    def batches(self, rank: int, size: int, batch: int, epoch: int):
        """This rank's part in a new order: as many full batches on every rank."""
        generator = torch.Generator().manual_seed(epoch)
        order = torch.randperm(len(self.labels), generator=generator)[rank::size]
        steps = len(self.labels) // size // batch
        for picked in order[:steps * batch].split(batch):
            yield self.images[picked], self.labels[picked]


def _read() -> tuple[np.ndarray, np.ndarray]:
    for folder in _FOLDERS:
        if (folder / _FILE).exists():
            with gzip.open(folder / _FILE, "rt") as file:
                table = np.loadtxt(file, delimiter=",", dtype=np.float32)
            return table[:, :64], table[:, 64]
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise SystemExit(f"{_FILE} is in none of {', '.join(map(str, _FOLDERS))}: run from a "
                         "checkout of Ropewalk, or install scikit-learn, which has it too") from None
    return load_digits(return_X_y=True)


def net() -> nn.Module:
    """With the same first weights in every process of every run."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(64, 10))


@torch.no_grad()
def accuracy(model: nn.Module, digits: Digits) -> float:
    """The share of held-out images that the model tells right, in percent."""
    images, labels = digits.held_out
    return 100 * (model(images).argmax(1) == labels).float().mean().item()
