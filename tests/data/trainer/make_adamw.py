"""Write adamw.json: 20 steps of clipping and AdamW by PyTorch, for the tests of trainer/.

Needs torch.  usage: make_adamw.py > adamw.json

Weights and gradients are formulas of (step, element), exact in f32, so that only the results are in the file.
"""
import json, torch

COUNT, STEPS = 301, 20
LR, BETAS, EPS, DECAY, NORM = 1e-2, (0.9, 0.95), 1e-8, 0.1, 1.0


def start(i):
    return ((i * 37 + 11) % 257 - 128) / 256


def grad(step, i):
    # Every third step is below the clipping threshold.
    scale = 2 ** -13 if step % 3 == 2 else 2 ** -8
    return ((i * 7919 + step * 104729) % 2003 - 1001) * scale


def rate(step):
    return LR * min(1.0, (step + 1) / 5) * (1 - 0.03 * step)


p = torch.nn.Parameter(torch.tensor([start(i) for i in range(COUNT)], dtype=torch.float32))
opt = torch.optim.AdamW([p], lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY)
out = {"count": COUNT, "betas": BETAS, "eps": EPS, "weight_decay": DECAY, "max_grad_norm": NORM, "torch": torch.__version__, "step": []}
for s in range(STEPS):
    p.grad = torch.tensor([grad(s, i) for i in range(COUNT)], dtype=torch.float32)
    norm = torch.nn.utils.clip_grad_norm_([p], NORM)
    opt.param_groups[0]["lr"] = rate(s)
    opt.step()
    row = {"lr": rate(s), "norm": norm.item()}
    if s in (0, 4, STEPS - 1):
        row["param"] = [float(f"{x:.9g}") for x in p.detach().tolist()]
        row["exp_avg"] = [float(f"{x:.9g}") for x in opt.state[p]["exp_avg"].tolist()]
        row["exp_avg_sq"] = [float(f"{x:.9g}") for x in opt.state[p]["exp_avg_sq"].tolist()]
    out["step"].append(row)
print(json.dumps(out, indent=None))
