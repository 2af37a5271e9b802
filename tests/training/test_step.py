"""One optimizer step: its order, exact accumulation, and what stops it."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from alignfuse.data.batch import Batch
from alignfuse.data.records import Record
from alignfuse.errors import UserError
from alignfuse.systems.protocols import Clock, Loss, Step
from alignfuse.training.optimizer import OptimizerConfig, make_optimizer
from alignfuse.training.precision import choose_dtype
from alignfuse.training.settings import TrainingConfig
from alignfuse.training.step import Updater
from tests.training.fake import FakeSystem, make_loader, make_tokenizer

CPU = torch.device("cpu")
CLOCK = Clock(0, 10, 0.0)


def updater(system: FakeSystem, lr: float = 0.01, **options: object) -> Updater:
    return Updater(system, make_optimizer(system, OptimizerConfig(lr=lr)), device=CPU, **options)  # type: ignore[arg-type]


def micro_batches(records: list[Record], batch_size: int, accumulation: int, updates: int = 1) -> list[list[Batch]]:
    loader = make_loader(records, TrainingConfig(batch_size=batch_size, accumulation=accumulation, workers=0))
    return [[part.batch for part in group] for group in loader.groups(0, updates)]


def run(
    records: list[Record], batch_size: int, accumulation: int
) -> tuple[FakeSystem, list[dict[str, float]], list[int]]:
    system = FakeSystem(make_tokenizer(), dropout=0.0)
    step = updater(system, clip_norm=1.0)
    groups = micro_batches(records[:16], batch_size, accumulation, updates=4)
    counts = [step.terms([batch])["word"] for batch in groups[0]]
    means = [step.update(group, Clock(i, 4, 0.0)) for i, group in enumerate(groups)]
    return system, [{name: float(mean) for name, mean in line.items()} for line in means], counts


def test_accumulation_equals_the_large_batch(records: list[Record]) -> None:
    whole, expected, _ = run(records, 8, 1)
    parts, found, counts = run(records, 2, 4)
    assert len(set(counts)) > 1  # a mean of means would differ
    for one, other in zip(expected, found, strict=True):
        assert other == pytest.approx(one, rel=1e-5)
    for name, tensor in whole.state_dict().items():
        torch.testing.assert_close(parts.state_dict()[name], tensor, rtol=1e-4, atol=1e-6, msg=name)
    assert whole.queue.filled.all()


class Recorder(FakeSystem):
    """Writes down what is called."""

    def __init__(self) -> None:
        super().__init__(make_tokenizer())
        self.calls: list[str] = []

    def before_step(self) -> None:
        self.calls.append("before_step")
        super().before_step()

    def teach(self, batch: Batch) -> object:  # type: ignore[override]
        assert not torch.is_grad_enabled()
        self.calls.append("teach")
        return super().teach(batch)

    def forward(self, *arguments: object) -> Step:  # type: ignore[override]
        self.calls.append("forward")
        return super().forward(*arguments)  # type: ignore[arg-type]

    def after_step(self, carries: Sequence[dict[str, Tensor]]) -> None:
        self.calls.append(f"after_step {len(carries)}")
        super().after_step(carries)


def test_the_order_of_a_step(records: list[Record]) -> None:
    system = Recorder()
    step = updater(system)
    step.optimizer.register_step_pre_hook(lambda *_: system.calls.append("optimizer"))
    step.update(micro_batches(records, 4, 2)[0], CLOCK)
    assert system.calls == ["before_step", "teach", "teach", "forward", "forward", "optimizer", "after_step 2"]


def test_a_rehearsal_changes_nothing(records: list[Record]) -> None:
    system = FakeSystem(make_tokenizer())
    step = updater(system)
    group = micro_batches(records, 4, 2)[0]
    before = {name: tensor.clone() for name, tensor in system.state_dict().items()}
    step.rehearse(group, CLOCK)
    assert all(torch.equal(before[name], tensor) for name, tensor in system.state_dict().items())
    assert all(parameter.grad is None for parameter in system.parameters())


def test_dropout_depends_on_the_step_alone(records: list[Record]) -> None:
    group = micro_batches(records, 4, 1)[0]
    first = updater(FakeSystem(make_tokenizer())).update(group, CLOCK)
    torch.rand(17)
    again = updater(FakeSystem(make_tokenizer())).update(group, CLOCK)
    later = updater(FakeSystem(make_tokenizer())).update(group, Clock(1, 10, 0.0))
    assert first == again
    assert first["loss/align"] != later["loss/align"]


class Spoilt(FakeSystem):
    """Multiplies one loss or its gradient by something not finite."""

    def __init__(self, what: str, value: float) -> None:
        super().__init__(make_tokenizer())
        self.what, self.value = what, value

    def forward(self, *arguments: object) -> Step:  # type: ignore[override]
        step = super().forward(*arguments)  # type: ignore[arg-type]
        total, count = step.losses["word"]
        if self.what == "loss":
            total = total * self.value
        elif self.what == "gradient":
            total.register_hook(lambda gradient: gradient * self.value)
        else:
            count = count + 1
        return step._replace(losses={**step.losses, "word": Loss(total, count)})


@pytest.mark.parametrize(
    ("what", "value", "message"),
    [
        ("loss", float("nan"), "step 124: word loss is nan; lower optimizer.lr"),
        ("loss", float("inf"), "step 124: word loss is inf"),
        ("gradient", float("nan"), "step 124: the losses are finite and their gradient is not"),
    ],
)
def test_what_is_not_finite_stops_before_the_update(
    records: list[Record], what: str, value: float, message: str
) -> None:
    system = Spoilt(what, value)
    step = updater(system)
    weight = system.model.image.weight.detach().clone()
    with pytest.raises(UserError, match=message):
        step.update(micro_batches(records, 4, 1)[0], Clock(123, 200, 0.0))
    assert torch.equal(system.model.image.weight, weight)


def test_wrong_announced_terms_are_an_error(records: list[Record]) -> None:
    with pytest.raises(RuntimeError, match="announced"):
        updater(Spoilt("count", 0)).update(micro_batches(records, 4, 1)[0], CLOCK)


def test_weights_scale_losses(records: list[Record]) -> None:
    group = micro_batches(records, 4, 1)[0]
    plain = updater(FakeSystem(make_tokenizer())).update(group, CLOCK)
    weighted = updater(FakeSystem(make_tokenizer()), weights={"word": 0.5}).update(group, CLOCK)
    assert weighted["loss/word"] == plain["loss/word"]
    expected = float(plain["loss/align"]) + 0.5 * float(plain["loss/word"])
    assert float(weighted["loss"]) == pytest.approx(expected)
    with pytest.raises(UserError, match="no loss 'itm' to weigh; this system has align, word"):
        updater(FakeSystem(make_tokenizer()), weights={"itm": 0.5}).update(group, CLOCK)


def test_clipping_cuts_the_norm_of_the_whole_gradient(records: list[Record]) -> None:
    group = micro_batches(records, 4, 1)[0]
    seen: list[float] = []
    step = updater(FakeSystem(make_tokenizer()), clip_norm=0.5)

    def norm(optimizer: torch.optim.Optimizer, *_: object) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        seen.append(float(torch.nn.utils.get_total_norm(gradients)))

    step.optimizer.register_step_pre_hook(norm)
    means = step.update(group, CLOCK)
    assert float(means["grad_norm"]) > 0.5
    assert seen == pytest.approx([0.5], rel=1e-4)


def test_bf16_keeps_weights_and_losses_in_fp32(records: list[Record]) -> None:
    group = micro_batches(records, 8, 1)[0]
    exact = updater(FakeSystem(make_tokenizer(), dropout=0.0)).update(group, CLOCK)
    system = FakeSystem(make_tokenizer(), dropout=0.0)
    rough = updater(system, dtype=choose_dtype("bf16", CPU)).update(group, CLOCK)
    assert float(rough["loss"]) == pytest.approx(float(exact["loss"]), rel=0.02)
    assert float(rough["loss"]) != float(exact["loss"])
    assert {parameter.dtype for parameter in system.parameters()} == {torch.float32}


def test_precision_by_device() -> None:
    assert choose_dtype("auto", CPU) == torch.float32
    with pytest.raises(UserError, match="fp16 is about 200 times slower than fp32 on a CPU"):
        choose_dtype("fp16", CPU)
