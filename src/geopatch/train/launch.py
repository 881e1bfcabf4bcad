"""Several processes that train one encoder together, started and joined by Lightning Fabric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from geopatch.errors import ConfigError, MissingExtraError
from geopatch.train.objective import Peers, Trainable

if TYPE_CHECKING:
    from torch.optim import Optimizer


class Team:
    """The processes of one training. Each sees its share of every batch; the contrast is over the whole batch."""

    def __init__(self, fabric: Any) -> None:
        self.fabric = fabric
        self.rank, self.size, self.leads = int(fabric.global_rank), int(fabric.world_size), bool(fabric.is_global_zero)
        self.device: torch.device = fabric.device

    def peers(self) -> Peers:
        return Peers(self.rank, self._gather)

    def share(self, index: Tensor) -> Tensor:
        """This process's part of a batch; all parts have the same size."""
        return index[: len(index) // self.size * self.size][self.rank :: self.size]

    def join(self, objective: Trainable, optimizer: Optimizer) -> tuple[Any, Any]:
        """The objective and optimizer, wrapped so that gradients are averaged over the processes."""
        wrapped = self.fabric.setup(objective, optimizer)
        return wrapped[0], wrapped[1]

    def broadcast(self, value: bool) -> bool:
        """What the leading process says, in every process."""
        return bool(self.fabric.broadcast(value))

    def _gather(self, tensor: Tensor) -> Tensor:
        gathered: Tensor = self.fabric.all_gather(tensor, sync_grads=tensor.requires_grad)
        return gathered.flatten(0, 1)


def launch(processes: int, device: torch.device) -> Team:
    """Start the other processes; each runs the same program from its start and comes to this line too."""
    try:
        from lightning_fabric import Fabric
    except ImportError as error:
        raise MissingExtraError("lightning-fabric", "multi-gpu", "training on several devices") from error
    if device.type == "cuda" and torch.cuda.device_count() < processes:
        raise ConfigError(f"devices must be at most {torch.cuda.device_count()} on this machine, got {processes}")
    fabric = Fabric(accelerator=device.type, devices=processes, strategy="ddp")
    fabric.launch()
    return Team(fabric)
