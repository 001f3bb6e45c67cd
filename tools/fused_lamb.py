"""DeepSpeed's FusedLamb for the scripts that make fixtures.

The class itself (deepspeed/ops/lamb/fused_lamb.py) needs a GPU. This is the formula of its kernel
(csrc/lamb/fused_lamb_cuda_kernel.cu, lamb_cuda_kernel_part1 to _part3 and fused_lamb_cuda; DeepSpeed 0.19.8) in torch: all in
fp32, constants too, but norms, which the kernel sums in fp32 in the order of its blocks, in fp64.
"""

import numpy as np
import torch


class FusedLamb(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-8, eps_inside_sqrt=False,
                 weight_decay=0.0, max_coeff=10.0, min_coeff=0.01):
        super().__init__(params, dict(lr=lr, bias_correction=bias_correction, betas=betas, eps=eps,
                                      weight_decay=weight_decay, max_coeff=max_coeff, min_coeff=min_coeff))
        self.eps_inside_sqrt = eps_inside_sqrt

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.update(p, group)

    def update(self, p, group):
        state = self.state[p]
        if not state:
            state |= {"step": 0, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        state["step"] += 1
        b1, b2 = (np.float32(beta) for beta in group["betas"])
        m, v = state["exp_avg"], state["exp_avg_sq"]
        m.mul_(float(b1)).add_(float(1 - b1) * p.grad)
        v.mul_(float(b2)).add_(float(1 - b2) * p.grad * p.grad)
        eps = float(np.float32(group["eps"]))
        denominator = (v + eps).sqrt() if self.eps_inside_sqrt else v.sqrt() + eps
        update = m / denominator + float(np.float32(group["weight_decay"])) * p
        p.sub_(float(self.step_size(group, state["step"], b1, b2) * self.coefficient(p, update, group)) * update)

    @staticmethod
    def step_size(group, step, b1, b2):
        lr = np.float32(group["lr"])
        if not group["bias_correction"]:
            return lr
        correction1, correction2 = (np.float32(1 - float(beta) ** step) for beta in (b1, b2))
        return lr * np.sqrt(correction2) / correction1

    @staticmethod
    def coefficient(p, update, group):
        weights, updates = (np.float32(x.double().square().sum().sqrt().item()) for x in (p, update))
        if weights == 0 or updates == 0:
            return np.float32(1)
        return max(min(weights / updates, np.float32(group["max_coeff"])), np.float32(group["min_coeff"]))
