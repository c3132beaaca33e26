"""Private runs: the accountant against published numbers, clipping and noise against their laws, what is refused."""

import dataclasses
import json

import numpy as np
import pytest
from scipy import stats

from qfl_core.algorithm.client import Broadcast
from qfl_core.algorithm.methods import METHODS
from qfl_core.algorithm.server import IN_PROCESS, State
from qfl_core.base.errors import ConfigError, DataError
from qfl_core.config import ExperimentConfig, load_profile
from qfl_core.data import load_splits
from qfl_core.extras import accountant, masked_sum, privacy
from qfl_core.extras.accountant import ORDERS, charged, epsilon, gaussian_rdp, nothing_spent, privacy_row
from qfl_core.runs import run_experiment
from qfl_core.runs.experiment import state_from_json, train
from qfl_core.runs.journal import _plain
from qfl_core.runs.prepare import make_federation, prepare
from qfl_core.runs.schema import SCHEMA

CONFIG = load_profile("smoke").config(
    "baf", source="stand-in", clients=4, rounds=3, train_size=300, val_size=100, test_size=100, seed=5, outer_period=0
)
NOISY, MASKED = CONFIG.replace(dp_noise=1.0), CONFIG.replace(uploads="masked")


@pytest.fixture(scope="module")
def splits():
    return load_splits(CONFIG)


def first_round(config, splits):
    """Return the federation, its first broadcast, and what honest clients train."""
    federation = prepare(config, splits).federation
    start = State.initial(federation)
    sent = Broadcast(0, start.theta, start.phi["controller"])
    return federation, sent, IN_PROCESS.train(federation, sent)


# The accountant


@pytest.mark.parametrize(
    ("examples", "batch", "noise", "epochs", "delta", "published"),
    [
        # tensorflow_privacy/privacy/analysis/compute_dp_sgd_privacy_test.py, Test0 and Test1
        (60_000, 150, 1.3, 15, 1e-5, 0.7242234026109595),
        (100_000, 100, 1.0, 30, 1e-7, 1.4154988495444845),
        # Flower 1.41's RdpAccountant with dp-accounting 0.6.0: MNIST, 60 epochs; its best order is not whole
        (60_000, 256, 1.1, 60, 1e-5, 2.596655529521983),
    ],
)
def test_the_accountant_gives_published_epsilons_of_sampled_noise(examples, batch, noise, epochs, delta, published):
    steps = np.ceil(epochs * examples / batch)
    assert epsilon(steps * gaussian_rdp(noise, batch / examples), delta) == pytest.approx(published, rel=1e-9)


@pytest.mark.parametrize(
    ("noise", "rounds", "delta", "flower"),
    [
        (1.0, 1, 1e-5, 4.728507067217623),
        (4.0, 20, 1e-3, 4.052804900168968),
        (1.0, 20, 1e-5, 30.12663110385034),
        (20.0, 30, 1e-3, 0.765065771118928),
        (0.5, 20, 1e-2, 65.00968266960857),
    ],
)
def test_the_accountant_gives_flowers_epsilon_where_everybody_takes_part(noise, rounds, delta, flower):
    """Values of ``flwr.supercore.privacy_accounting.rdp_accountant`` 1.41, no amplification, add or remove one."""
    assert epsilon(rounds * gaussian_rdp(noise), delta) == pytest.approx(flower, rel=1e-12)


def test_the_accountant_gives_what_flowers_own_gives():
    pytest.importorskip("dp_accounting", reason="Flower's accountant needs dp-accounting (flwr[dp])")
    flower = pytest.importorskip("flwr.supercore.privacy_accounting")
    from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

    relation, method = flower.NeighboringRelation.ADD_OR_REMOVE_ONE, flower.SamplingMethod
    rng, whole = np.random.default_rng(11), ORDERS % 1 == 0  # for others its series does not always converge
    for _ in range(20):
        noise, clients, rounds = rng.uniform(0.5, 20), int(rng.integers(2, 200)), int(rng.integers(1, 50))
        sampled = int(rng.integers(1, clients + 1))
        for kind, share in ((method.POISSON, sampled / clients), (method.NO_AMPLIFICATION, 1.0)):
            theirs = RdpAccountant(flower.PrivacyConfig(1e-5, clients, relation, kind), tuple(ORDERS[whole]))
            theirs.compose(flower.GaussianPrivacyEvent(noise, sampled, clients), rounds)
            ours = epsilon(np.where(whole, rounds * gaussian_rdp(noise, share), np.inf), 1e-5)
            assert ours == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-7)


def test_a_sampled_release_without_sampling_is_the_plain_one_and_without_noise_nothing_is_private():
    assert gaussian_rdp(1.5, 1 - 1e-12) == pytest.approx(gaussian_rdp(1.5), rel=1e-6)
    assert np.isinf(gaussian_rdp(0.0)).all()
    assert epsilon(gaussian_rdp(0.0), 1e-5) == np.inf


def test_a_client_pays_for_the_rounds_that_it_is_asked_in_and_the_one_that_spent_most_counts():
    config = CONFIG.replace(dp_noise=2.0)
    spent = charged(config, nothing_spent(4), np.array([0, 1]), 2)
    spent = charged(config, spent, np.array([1, 2]), 2)
    assert spent["models"].tolist() == [1 / 8, 2 / 8, 1 / 8, 0]
    assert spent["server"] == pytest.approx(2 * spent["models"])  # each of two uploads has half of the noise's variance
    row = privacy_row(config, 2, spent)
    assert row["epsilon"] == epsilon(2 * gaussian_rdp(2.0), 1e-5)
    assert row["epsilon_server"] == pytest.approx(epsilon(2 * gaussian_rdp(2.0 / np.sqrt(2)), 1e-5))


def test_lost_uploads_take_their_noise_with_them():
    spent = charged(CONFIG.replace(dp_noise=2.0), nothing_spent(4), np.arange(4), 1)
    assert spent["models"] == pytest.approx(np.full(4, accountant.gaussian_rho(1.0)))


def test_where_uploads_are_masked_the_server_learns_what_the_models_tell():
    spent = charged(CONFIG.replace(dp_noise=2.0, uploads="masked"), nothing_spent(4), np.arange(4), 4)
    assert spent["models"].tolist() == spent["server"].tolist() == [1 / 8] * 4


# Clipping and noise


def test_clipping_shortens_long_steps_to_the_length_exactly_and_leaves_the_bits_of_others():
    rng = np.random.default_rng(3)
    steps = rng.normal(size=(2000, 16)) * rng.uniform(0.01, 10, size=(2000, 1))
    found = privacy.shortened(steps, 1.3)
    before, after = (np.sqrt((s**2).sum(axis=1)) for s in (steps, found))
    assert (after <= 1.3).all()
    assert 100 < (before > 1.3).sum() < 2000
    assert after[before > 1.3] == pytest.approx(1.3, rel=1e-14)
    assert found[before <= 1.3].tobytes() == steps[before <= 1.3].tobytes()
    direction = found / after[:, None] - steps / before[:, None]
    assert np.abs(direction).max() < 1e-14


def test_zero_noise_releases_the_clipped_steps(splits):
    federation, sent, local = first_round(CONFIG.replace(dp_noise=0.0, dp_clip=0.05), splits)
    rngs = federation.generators(privacy.NOISE, 0, range(4))
    steps = privacy.released_steps(federation, sent, local, rngs)
    assert np.array_equal(steps, privacy.shortened(local.theta - sent.theta, 0.05))
    assert np.sqrt((steps**2).sum(axis=1)) == pytest.approx(0.05)


def test_the_noise_of_the_sum_has_the_standard_deviation_z_times_the_clip(splits):
    """400 sums of four clients' noise in 16 weights, from fixed streams: Gaussian, independent, of the stated size."""
    federation, sent, local = first_round(CONFIG.replace(dp_noise=1.7, dp_clip=0.4), splits)
    clipped = privacy.shortened(local.theta - sent.theta, 0.4)
    drawn = []
    for t in range(400):
        rngs = federation.generators(privacy.NOISE, t, range(4))
        drawn.append(privacy.released_steps(federation, sent, local, rngs) - clipped)
    noise = np.array(drawn)  # (400, 4, 16)
    z = noise.sum(axis=1).ravel() / (1.7 * 0.4)
    assert stats.kstest(z, "norm").pvalue > 0.01
    assert stats.kstest(noise[:, 0].ravel() / (1.7 * 0.4 / 2), "norm").pvalue > 0.01
    correlations = np.corrcoef(noise.reshape(400, -1).T)
    assert np.abs(correlations - np.eye(64)).max() < 0.25
    assert abs(stats.chi2.cdf((z**2).sum(), len(z)) - 0.5) < 0.49


def test_the_noise_of_a_client_on_a_network_comes_from_the_operating_system():
    pytest.importorskip("flwr")
    from qfl_core.network.member import SystemNoise

    drawn = SystemNoise().normal(2.0, 3.0, 4000)
    assert not np.array_equal(drawn[:10], SystemNoise().normal(2.0, 3.0, 10))
    # Wide: beyond eight standard errors, so chance never fails it.
    assert abs(drawn.mean() - 2) < 8 * 3 / np.sqrt(4000)
    assert abs(drawn.std() - 3) < 8 * 3 / np.sqrt(8000)


def test_the_new_model_is_the_plain_mean_of_the_noisy_steps(splits):
    federation, sent, local = first_round(NOISY, splits)
    found = privacy.Private(IN_PROCESS).train(federation, sent)
    steps = privacy.released_steps(federation, sent, local, federation.generators(privacy.NOISE, 0, range(4)))
    assert np.array_equal(found.theta, sent.theta + steps)
    weights = federation.method.aggregation(found.attendance, {})
    assert weights.tolist() == [0.25] * 4
    first = next(r for r in train(federation) if r["state"]["done"] == 1)
    assert first["state"]["theta"] == pytest.approx((sent.theta + steps.mean(axis=0)).tolist(), abs=1e-14)


# Masked sums


def test_masked_uploads_give_the_plain_weighted_mean_within_the_rounding(splits):
    plain = list(train(prepare(CONFIG, splits).federation))
    masked = list(train(prepare(MASKED, splits).federation))
    one = np.abs(np.array(plain[1]["state"]["theta"]) - np.array(masked[1]["state"]["theta"]))
    assert 0 < one.max() <= 2.0 ** -(masked_sum.BITS + 1) + 1e-15


def test_whole_numbers_are_refused_where_they_could_overflow():
    assert masked_sum.to_integers(np.array([[1.0, -0.5]]), np.array([3])).tolist() == [[3 * 2**32, -3 * 2**31]]
    assert masked_sum.LONGEST * 2.0**masked_sum.BITS * masked_sum.MOST < 2.0**63
    for steps, counts in (([[2000.0]], [1]), ([[np.nan]], [1]), ([[1.0]], [2**20 + 1])):
        with pytest.raises(DataError, match=r"masked"):
            masked_sum.to_integers(np.array(steps), np.array(counts))
    with pytest.raises(DataError, match="a mask was not taken away"):
        masked_sum.mean_of_sum(np.array([2**62]), 1)


# What a private run keeps


@pytest.mark.parametrize("config", [NOISY, MASKED, MASKED.replace(dp_noise=1.0)], ids=["noisy", "masked", "both"])
def test_a_private_run_keeps_nothing_of_a_single_client(config, tmp_path):
    run = run_experiment(config, tmp_path)
    assert not run.changed_files()
    assert (run.path / "client_trace.csv").read_text().splitlines() == [",".join(SCHEMA["client_trace"])]
    for table, columns in privacy.FROM_CLIENTS.items():
        assert run.table(table)[list(columns)].isna().all(axis=None), table
    assert run.rounds["global_accuracy"].notna().all()
    assert run.rounds["test_roc_auc"].notna().all()
    assert (run.path / "privacy.csv").is_file() == (config.dp_noise is not None)


def test_epsilon_grows_from_round_to_round_and_is_in_the_results(tmp_path):
    run = run_experiment(NOISY, tmp_path)
    spent = run.table("privacy")
    assert spent["round"].tolist() == [1, 2, 3]
    expected = [epsilon(t * gaussian_rdp(1.0), 1e-5) for t in (1, 2, 3)]
    assert spent["epsilon"].tolist() == pytest.approx(expected)
    assert (spent["epsilon_server"] > spent["epsilon"]).all()
    assert (spent["delta"] == 1e-5).all()


def test_a_private_run_resumes_to_the_same_records(splits):
    federation = prepare(NOISY, splits).federation
    whole = list(train(federation))
    rest = list(train(federation, state_from_json(whole[1]["state"])))
    assert [_text(record) for record in rest] == [_text(record) for record in whole[2:]]


def _text(record) -> str:
    return json.dumps(record | {"seconds": 0}, sort_keys=True, default=_plain)


def test_off_is_off_to_the_bit(splits):
    """Defaults leave uploads, records and the digest of a config as they were before there was any privacy."""
    federation = prepare(CONFIG, splits).federation
    assert privacy.with_privacy(federation.method, CONFIG) is federation.method
    assert "privacy" not in next(train(federation))
    assert ExperimentConfig().digest == "9b38e27575170b2a642cf59e31dc6e6a2da9c0d7355497bc104e5f9b546ad6df"
    paper = load_profile("paper").config("genome-clean")
    assert paper.digest == "ceac95ecff7e5b51da78f1a284a93bccccba57e85b31c48880ac0e7a408cb74c"
    others = [NOISY, MASKED, NOISY.replace(dp_clip=2.0), NOISY.replace(dp_delta=1e-6), CONFIG]
    assert len({config.digest for config in others}) == len(others)


# What is refused


@pytest.mark.parametrize("private", [{"dp_noise": 1.0}, {"uploads": "masked"}], ids=["dp", "masked"])
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"outer_period": 5}, "outer_period=5 is not valid: expected 0 with .*virtual rounds"),
        ({"method": "adam-qfl"}, "method='adam-qfl' is not valid: expected another with .*tuned by scores"),
        ({"method": "scaffold-qfl"}, "method='scaffold-qfl' is not valid"),
        ({"method": "duqfl-learned"}, "method='duqfl-learned' is not valid"),
        ({"aggregation": "median"}, "aggregation='median' is not valid: expected 'own' with"),
        ({"screening": 10.0}, r"screening=10.0 is not valid: expected null with"),
        ({"attack": "noise"}, "attack='noise' is not valid: expected 'none' with"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_contradicts_a_private_run_is_refused_in_one_line(private, changes, told):
    with pytest.raises(ConfigError, match=told) as refused:
        CONFIG.replace(**private, **changes)
    assert "\n" not in str(refused.value)
    named = "dp_noise=1" if "dp_noise" in private else "uploads='masked'"
    assert named in str(refused.value)


def test_masked_sums_of_two_clients_or_of_too_many_samples_are_refused():
    with pytest.raises(ConfigError, match="'plain' with 2 clients per round"):
        CONFIG.replace(uploads="masked", participation=0.5)
    with pytest.raises(ConfigError, match="'plain' with 2 clients per round"):
        CONFIG.replace(uploads="masked", participation=[0, 3])
    with pytest.raises(ConfigError, match="chunk=1000000 is not valid: expected at most"):
        CONFIG.replace(uploads="masked", chunk=1_000_000)


def test_methods_of_ones_own_that_need_more_than_steps_are_refused_before_any_work():
    prox = METHODS["duqfl-prox"]
    own = dataclasses.replace(prox.aggregation, weights=lambda attendance, learned: np.ones(len(attendance.sizes)))
    for method, told in (
        (METHODS["adam-qfl"], "tunes or learns with their scores"),
        (dataclasses.replace(prox, aggregation=own), "an aggregation of its own"),
    ):
        with pytest.raises(ConfigError, match=told):
            make_federation(NOISY, method=method)


def test_orders_are_those_of_flowers_accountant():
    assert len(ORDERS) == 156
    assert ORDERS[0] == pytest.approx(1.1)
    assert (np.diff(ORDERS) > 0).all()
