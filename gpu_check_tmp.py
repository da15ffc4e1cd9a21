import copy, time, warnings, traceback
import numpy as np, torch
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
from tests.layers import lstm_records as L, attention_records as A
from mlc_torch.layers.lstm_sequence import lstm_sequence
dev = torch.device("cuda")
print(torch.__version__, torch.cuda.get_device_name())
bad = 0
for fam in (L, A):
    for r in fam.RECORDS:
        for dtype, tol in ((torch.float32, 2e-5), (torch.float16, 2e-2), (torch.float64, 1e-7)):
            for grad in (False, True):
                try:
                    m = copy.deepcopy(r.make().module).train(r.training).to(device=dev, dtype=dtype)
                    s = [torch.from_numpy(np.array(x)).to(dev) for x in r.sources]
                    s = [x.to(dtype) if x.is_floating_point() else x for x in s]
                    with torch.set_grad_enabled(grad), warnings.catch_warnings():
                        warnings.simplefilter("error")
                        got = m(*s)
                        got = list(got) if isinstance(got, tuple) else [got]
                        if grad:
                            g = torch.autograd.grad(sum(x.float().square().sum() for x in got), list(m.parameters()))
                            assert all(torch.isfinite(x).all() for x in g), "gradient"
                            cpu = copy.deepcopy(r.make().module).train(r.training).double()
                            cs = [torch.from_numpy(np.array(x)) for x in r.sources]; cs = [x.double() if x.is_floating_point() else x for x in cs]
                            cg = cpu(*cs); cg = list(cg) if isinstance(cg, tuple) else [cg]
                            cgr = torch.autograd.grad(sum(x.square().sum() for x in cg), list(cpu.parameters()))
                            for a, b in zip(g, cgr):
                                scale = max(1.0, float(b.abs().max()))
                                assert float((a.cpu().double() - b).abs().max()) <= scale * tol * (20 if dtype != torch.float16 else 5), ("grad", float((a.cpu().double() - b).abs().max()), scale)
                    want = r.reference(*[x.astype(float) if x.dtype.kind == "f" else x for x in r.sources])
                    want = list(want) if isinstance(want, tuple) else [want]
                    for a, b in zip(got, want):
                        np.testing.assert_allclose(a.detach().cpu().double().numpy(), b, rtol=tol*10, atol=tol)
                except Exception as e:
                    bad += 1
                    print("FAIL", fam.__name__, r.name, dtype, grad, type(e).__name__, str(e)[:300])
print("records done, bad:", bad)

def capture(module, sources):
    params = list(module.parameters())
    def step():
        out = module(*sources); out = out if isinstance(out, tuple) else (out,)
        return out[0], torch.autograd.grad(out[0].square().sum(), params)
    st = torch.cuda.Stream(); st.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(st):
        for _ in range(3): step()
    torch.cuda.current_stream().wait_stream(st)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g): res = step()
    g.replay(); torch.cuda.synchronize()
    ref = step()
    assert torch.allclose(res[0], ref[0], atol=1e-5) and all(torch.allclose(a, b, rtol=1e-3, atol=1e-3) for a, b in zip(res[1], ref[1]))
    return g
def ms(fn, n=20):
    for _ in range(3): fn()
    torch.cuda.synchronize(); t = time.perf_counter()
    for _ in range(n): fn()
    torch.cuda.synchronize(); return (time.perf_counter() - t) / n * 1e3
for fam in (L, A):
    for r in fam.RECORDS:
        if r.training: continue
        try:
            m = copy.deepcopy(r.make().module).eval().to(dev); capture(m, [torch.from_numpy(np.array(x)).to(dev) for x in r.sources])
        except Exception as e: print("CAPTURE FAIL", r.name, type(e).__name__, str(e)[:200])
print("captures done")
from mlc_torch.layers.lstm import MLCLSTMLayer
from mlc_torch.descriptors import MLCLSTMDescriptor
from mlc_torch.tensor import MLCTensor
def layer(i, h, n, bi):
    D = 2 if bi else 1
    d = MLCLSTMDescriptor(inputSize=i, hiddenSize=h, layerCount=n, usesBiases=True, isBidirectional=bi, dropout=0.0)
    wi, wh, _, b = L.tensors(L.arrays(i, h, n, D)); 
    for t in (*wi, *wh): t.torch.mul_(0.1)
    return MLCLSTMLayer(descriptor=d, inputWeights=wi, hiddenWeights=wh, biases=b)
for (T, B, I, H, n, bi) in [(50, 64, 128, 128, 1, False), (50, 64, 128, 256, 2, False), (100, 32, 128, 256, 2, True), (28, 128, 28, 128, 1, False)]:
    x = torch.randn(B, T, I, device=dev)
    m = copy.deepcopy(layer(I, H, n, bi).module).to(dev)
    nn = torch.nn.LSTM(I, H, n, batch_first=True, bidirectional=bi).to(dev)
    def f(mod):
        out = mod(x); out = out[0] if isinstance(out, tuple) else out
        return torch.autograd.grad(out.square().sum(), list(mod.parameters()))
    wrap = torch.nn.Module(); 
    a, b = ms(lambda: f(m)), ms(lambda: f(nn))
    ga = capture(m, [x]); gb = capture(nn, [x])
    lengths = torch.full((B,), T, dtype=torch.int32, device=dev)
    def fl():
        return torch.autograd.grad(m(x, lengths).square().sum(), list(m.parameters()))
    print((T, B, I, H, n, bi), f"eager ours {a:.2f} nn.LSTM {b:.2f}; captured ours {ms(ga.replay):.2f} nn.LSTM {ms(gb.replay):.2f}; loop eager {ms(fl, 3):.1f}", flush=True)
