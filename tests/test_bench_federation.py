"""The bench of the federation counts the processes below this one, and no others."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from tools.bench import scale
from tools.bench.federation import FederationCost, _is_below, descendants_cpu, federation_config

BUSY = "import time\nwhile time.process_time() < 0.3: pass\nprint('spent', flush=True)\ninput()"
#: Starts the busy process. What is below this one has no part in other tests, whose processes may end at any time.
STARTER = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"


def test_a_process_is_below_those_that_started_it():
    parents = {5: 4, 4: 3, 3: 1, 9: 8, 8: 1}
    assert _is_below(5, 3, parents)
    assert not _is_below(3, 3, parents)
    assert not _is_below(9, 3, parents)


@pytest.mark.outside
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_what_a_child_spends_is_counted_while_it_runs():
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "spent\n"
        assert 0.25 <= descendants_cpu(child.pid) <= descendants_cpu()
        child.communicate("\n")
    assert descendants_cpu(child.pid) == 0


def test_the_ratio_is_that_of_the_two_rounds():
    assert FederationCost(5, 6, 0.6, 0.02, 30.0).ratio == pytest.approx(30)
    config = federation_config(5, 6)
    assert (config.clients, config.rounds, config.source) == (5, 6, "stand-in")


def test_a_masked_federation_is_measured_without_outer_updates():
    config = federation_config(5, 6, masked=True)
    assert (config.uploads, config.outer_period) == ("masked", 0)


def test_messages_are_three_objects_and_noise_alone_is_the_shortest():
    found = scale.measure_messages(3)
    assert {size.objects for size in found.values()} == {3}
    assert found["up, upload with noise"].size < found["up, upload with its trace"].size


def test_a_masked_round_costs_bytes_in_proportion_to_its_clients():
    few, many = scale.measure_masks(4), scale.measure_masks(8)
    assert 1.5 < many.up / few.up < 2.5
    assert 1.5 < many.down / few.down < 2.5
