"""The science does not change silently: smoke results equal the committed ones."""

import pandas as pd
from reference import FILE, KEYS, reference_table


def test_smoke_results_equal_the_committed_ones_to_a_millionth(tmp_path):
    kept = pd.read_csv(FILE).set_index(KEYS)
    found = reference_table(tmp_path).set_index(KEYS)
    pd.testing.assert_frame_equal(found, kept, rtol=1e-6, atol=0, check_dtype=False)
