"""Datasets of recorded episodes: Minari, npz and HDF5 files to buffers, and buffers to files."""

from .minari import from_minari, to_minari
from .npz import from_npz, to_npz
from .steps import EpisodeTable
from .tables import from_hdf5

__all__ = ["EpisodeTable", "from_hdf5", "from_minari", "from_npz", "to_minari", "to_npz"]
