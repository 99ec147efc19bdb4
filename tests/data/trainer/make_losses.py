"""Write losses.json: advantages and losses of small batches, for the tests of trainer/.

Needs numpy only.  usage: make_losses.py > losses.json

Everything is written over padded [samples, tokens] arrays and a mask, the way PyTorch trainers write it; derivatives by
each token's log-probability are central differences of the loss, with weights and `old` held fixed.
"""
import itertools, json, sys
import numpy as np

EPS, CUT = 1e-4, 20.0
rng = np.random.default_rng(20240601)


def exp(x):
    return np.exp(np.clip(x, -CUT, CUT))


def std(x):
    return x.std(ddof=1) if len(x) > 1 else 0.0


def kl_of(estimator, current, reference):
    d = reference - current
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return d * d / 2
    d = np.clip(d, -CUT, CUT)
    return np.exp(d) - d - 1


def advantages(c, b):
    """Rewards shaped, compared within groups, scaled; who is trained on."""
    r = b["reward"].astype(np.float64).copy()
    length = b["mask"].sum(1)
    if c["overlong_factor"]:
        expected = c["max_response_tokens"] - c["overlong_buffer"]
        r += np.minimum(-(length - expected) / c["overlong_buffer"] * c["overlong_factor"], 0)
    if c["kl_coef"] and c["kl_in"] == "reward":
        r -= c["kl_coef"] * (kl_of(c["kl"], b["old"], b["reference"]) * b["mask"]).sum(1)
    use = ~b["dropped"]
    a, keep = np.zeros(len(r)), np.zeros(len(r), bool)
    for g in np.unique(b["group"]):
        i = np.flatnonzero((b["group"] == g) & use)
        if len(i) == 0:
            continue
        if c["algorithm"] == "grpo":
            a[i] = r[i] - r[i].mean()
        elif len(i) > 1:
            a[i] = [r[k] - r[np.setdiff1d(i, [k])].mean() for k in i]
        if c["advantage_scale"] == "group":
            a[i] /= std(r[i]) + EPS
        flat = np.all(b["reward"][i] == b["reward"][i][0])
        keep[i] = not (flat and c["zero_std"] == "drop")
    if c["advantage_scale"] == "batch":
        a /= std(r[use]) + EPS
    return np.where(keep, a, 0), keep


def weights(c, b, mask, old):
    """Correction of the rollout's mismatch: value per token, what was cut, what was dropped, effective sample size."""
    one = np.ones_like(old)
    no = np.zeros_like(old)
    if c["old"] == "rollout" or c["is"] == "off":
        return one, no, no, 0.0
    d = (old - b["rollout"]) * mask
    w = exp(d) if c["is"] == "token" else exp(d.sum(1, keepdims=True)) * one
    bad = (w < c["is_min"]) | (w > c["is_max"])
    new = np.clip(w, c["is_min"], c["is_max"]) if c["is_mode"] == "truncate" else np.where(bad, 0, w)
    x = new[mask > 0] if c["is"] == "token" else new[mask.sum(1) > 0, 0]
    ess = x.sum() ** 2 / (len(x) * (x ** 2).sum()) if (x ** 2).sum() > 0 else 0.0
    return new, bad & (c["is_mode"] == "truncate"), bad & (c["is_mode"] == "mask"), ess


def loss(c, b, a, keep, current, old, w):
    """One mini-batch; `current` is what varies."""
    rows = keep[:, None] * b["mask"]
    mask = rows * (1 - b["masked"][:, None])
    n = mask.sum(1, keepdims=True)
    log_ratio = current - old
    if c["ratio"] == "sequence":
        log_ratio = (log_ratio * mask).sum(1, keepdims=True) / np.maximum(n, 1) * np.ones_like(current)
    ratio = exp(log_ratio)
    clipped = np.clip(ratio, 1 - c["clip_low"], 1 + c["clip_high"])
    if c["dual_clip"]:
        plain = np.minimum(ratio, c["dual_clip"]) * a[:, None]
    else:
        plain = ratio * a[:, None]
    policy = -np.minimum(plain, clipped * a[:, None]) * w
    kl = kl_of(c["kl"], current, b["reference"])
    token = policy + (c["kl_coef"] * kl if c["kl_coef"] and c["kl_in"] == "loss" else 0)

    def aggregate(x):
        x = x * mask
        if c["agg"] == "token-mean":
            return x.sum() / max(mask.sum(), 1)
        if c["agg"] == "seq-mean-token-mean":
            return (x.sum(1) / np.maximum(n[:, 0], 1)).sum() / keep.sum()
        if c["agg"] == "seq-mean-token-sum":
            return x.sum() / keep.sum()
        return x.sum() / (keep.sum() * c["max_response_tokens"])

    tokens = max(mask.sum(), 1)
    entropy = (b["entropy"] * mask).sum() / tokens
    return aggregate(token) - c["entropy_coef"] * entropy, {
        "policy": aggregate(policy),
        "entropy": entropy,
        "kl": (kl * mask).sum() / tokens if c["kl_coef"] and c["kl_in"] == "loss" else 0.0,
        "clip_low": ((ratio < 1 - c["clip_low"]) * (a[:, None] < 0) * mask).sum() / tokens,
        "clip_high": ((ratio > 1 + c["clip_high"]) * (a[:, None] > 0) * mask).sum() / tokens,
    }


def batch():
    groups, samples, most = 4, 4, 6
    n = groups * samples
    b = {"group": np.repeat(np.arange(groups), samples), "reward": rng.integers(0, 5, n) / 4.0}
    b["reward"][4:8] = 0.5  # a group without any difference
    b["dropped"] = np.zeros(n, bool)
    b["dropped"][[2, 9]] = True
    b["count"] = rng.integers(1, most + 1, n)
    b["mask"] = (np.arange(most)[None] < b["count"][:, None]).astype(np.float64)
    shape = (n, most)
    f = lambda x: x.astype(np.float32).astype(np.float64)
    b["current"] = f(-rng.gamma(2.0, 1.0, shape))
    b["old"] = f(b["current"] + rng.normal(0, 0.3, shape))
    b["rollout"] = f(b["old"] + rng.normal(0, 0.5, shape))
    b["reference"] = f(b["current"] + rng.normal(0, 0.7, shape))
    b["entropy"] = f(rng.gamma(2.0, 0.8, shape))
    b["length"] = b["count"] == most  # finish reason
    return b


BASE = dict(algorithm="grpo", advantage_scale="group", zero_std="keep", old="recompute", old_is_current=False, agg="token-mean",
            ratio="token", clip_low=0.2, clip_high=0.28, dual_clip=0.0, entropy_coef=0.01, kl_coef=0.0, kl="k3", kl_in="loss",
            overlong="keep", overlong_buffer=0, overlong_factor=0.0, max_response_tokens=6, is_min=0.0, is_max=2.0,
            is_mode="truncate")
BASE["is"] = "off"


def variants():
    for agg, ratio in itertools.product(("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"),
                                        ("token", "sequence")):
        yield dict(agg=agg, ratio=ratio)
        yield dict(agg=agg, ratio=ratio, old_is_current=True, entropy_coef=0.0)
    for algorithm, scale, zero in itertools.product(("grpo", "rloo"), ("group", "batch", "none"), ("keep", "drop")):
        yield dict(algorithm=algorithm, advantage_scale=scale, zero_std=zero)
    for kl, where, agg in itertools.product(("k1", "k2", "k3"), ("loss", "reward"), ("token-mean", "seq-mean-token-mean")):
        yield dict(kl_coef=0.2, kl=kl, kl_in=where, agg=agg)
    for level, mode, now in itertools.product(("token", "sequence"), ("truncate", "mask"), (False, True)):
        yield {"is": level, "is_mode": mode, "is_min": 0.5, "is_max": 1.5, "old_is_current": now}
        yield {"is": level, "is_mode": mode, "ratio": "sequence", "kl_coef": 0.1, "is_max": 1.2, "old_is_current": now}
    yield dict(old="rollout")
    yield dict(old="rollout", ratio="sequence", dual_clip=1.5)
    yield dict(dual_clip=1.4)
    yield dict(clip_low=0.0, clip_high=0.0)
    for agg in ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum-norm"):
        yield dict(overlong="mask", agg=agg)
    yield dict(overlong_buffer=3, overlong_factor=0.5, advantage_scale="none")


def case(change):
    c = {**BASE, **change}
    b = batch()
    b["masked"] = (b["length"] & (c["overlong"] == "mask")).astype(np.float64)
    a, keep = advantages(c, b)
    a = a.astype(np.float32).astype(np.float64)
    current = b["current"]
    old = b["rollout"] if c["old"] == "rollout" else current.copy() if c["old_is_current"] else b["old"]
    rows = keep[:, None] * b["mask"]
    mask = rows * (1 - b["masked"][:, None])
    w, cut, dropped, ess = weights(c, b, mask, old)
    value, parts = loss(c, b, a, keep, current, old, w)
    slope = np.zeros_like(current)
    for i, t in zip(*np.nonzero(rows)):
        h = 1e-5
        up, down = current.copy(), current.copy()
        up[i, t] += h
        down[i, t] -= h
        slope[i, t] = (loss(c, b, a, keep, up, old, w)[0] - loss(c, b, a, keep, down, old, w)[0]) / (2 * h)
    tokens = max(mask.sum(), 1)
    gap = ((b["rollout"] - old) * rows)
    samples = []
    for i in range(len(a)):
        n = int(b["count"][i])
        s = {"group": int(b["group"][i]), "reward": float(b["reward"][i]), "dropped": bool(b["dropped"][i]),
             "length": bool(b["length"][i]), "advantage": float(a[i]), "keep": bool(keep[i]),
             "kl_sum": float((kl_of(c["kl"], b["old"], b["reference"]) * b["mask"])[i].sum())}
        for k in ("current", "old", "rollout", "reference", "entropy"):
            s[k] = [float(x) for x in b[k][i, :n]]
        s["slope"] = [float(x) for x in slope[i, :n]]
        samples.append(s)
    return {"config": c, "samples": samples, "loss": value, **parts, "ess": ess,
            "truncated": float((cut * mask).sum() / tokens), "is_masked": float((dropped * mask).sum() / tokens),
            "gap_abs": float(np.abs(gap).sum() / rows.sum()), "gap": float(gap.sum() / rows.sum()),
            "gap_max": float(np.abs(gap).max())}


def shorten(x):
    if isinstance(x, float):
        return float(f"{x:.9g}")
    if isinstance(x, list):
        return [shorten(v) for v in x]
    if isinstance(x, dict):
        return {k: shorten(v) for k, v in x.items()}
    return x.item() if isinstance(x, np.generic) else x


out = [shorten(case(change)) for change in variants()]
sys.stdout.write("[\n" + ",\n".join(json.dumps(shorten(x)) for x in out) + "\n]\n")
