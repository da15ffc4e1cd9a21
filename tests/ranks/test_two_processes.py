"""Two processes compute what one computes, and none waits in vain for the other. One start runs all checks: it takes longest."""

from __future__ import annotations

from .launching import launch

NEEDED = {
    "primitives": {"a_device_joins", "norms_see_all_samples", "dropout_draws_what_one_process_would"},
    "equality": {"perceptron", "batch_norm_step_by_step", "phases_one_by_one", "YOLO", "several losses", "LSTM"},
    "behaviour": {"declared_outputs_are_whole", "gradients_are_whole", "linked_graphs", "own_shares"},
    "refusals": {"different_graphs", "a_rank_that_refuses_a_call", "a_rank_that_fails_in_the_middle"},
}


def test_every_check(tmp_path):
    # Without the machine's GPUs: where there is one, the second process would be refused.
    found = launch(tmp_path, "everything.py", seconds=400, CUDA_VISIBLE_DEVICES="")
    found.assert_all_passed()
    assert found.found[0].keys() >= set().union(*NEEDED.values())
