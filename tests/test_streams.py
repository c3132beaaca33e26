import numpy as np
import pytest

from qfl_core.base.streams import FEW, stream, streams


def test_a_stream_is_its_name():
    assert stream(3, "spsa", 1, 2).integers(1 << 40) == stream(3, "spsa", 1, 2).integers(1 << 40)


def test_every_part_of_the_name_matters():
    names = [
        (3, "spsa", 1, 2),
        (4, "spsa", 1, 2),
        (3, "shots", 1, 2),
        (3, "spsa", 2, 1),
        (3, "spsa", 1),
        (3, "spsa"),
        (3, "spsa", 0),
        (3, "spsa", 0, 0),
    ]
    draws = {stream(*name).integers(1 << 62) for name in names}
    assert len(draws) == len(names)


def test_streams_are_the_same_on_every_machine():
    assert stream(0, "golden", 1).integers(0, 1000, 5).tolist() == [461, 899, 171, 524, 840]


def test_a_negative_index_is_refused():
    with pytest.raises(ValueError, match="seed=-1"):
        stream(-1, "x")
    with pytest.raises(ValueError, match="indices"):
        stream(0, "x", -2)


def test_streams_look_independent():
    draws = np.array([stream(0, "client", i).standard_normal(2000) for i in range(20)])
    off_diagonal = np.corrcoef(draws)[~np.eye(20, dtype=bool)]
    assert np.abs(off_diagonal).max() < 0.1


@pytest.mark.parametrize("count", [0, FEW])
@pytest.mark.parametrize("name", [(0, "x"), (5, "round-shots", 3), (2**32 - 1, "q", 1, 2, 3)])
def test_many_streams_are_those_of_their_names(name, count):
    last = [0, 7, 2**31, 2**32 - 1, 7, *range(100, 100 + count)]
    for found, i in zip(streams(*name, last=last), last, strict=True):
        assert found.bit_generator.state == stream(*name, i).bit_generator.state
    assert streams(*name, last=[]) == []


@pytest.mark.parametrize("last", [[3, -1], [2**32], [*range(FEW), -1], [*range(FEW), 2**32]])
def test_many_streams_refuse_what_one_refuses(last):
    with pytest.raises(ValueError, match="indices"):
        streams(0, "x", last=last)
