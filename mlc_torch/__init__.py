from mlc_torch.refusals import last_refusal
