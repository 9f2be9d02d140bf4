"""How a network is stepped: an optimiser, clipping, and a copy that follows slowly.

The parameters of a network lie in one vector, so that all of this is a few calls a step: with networks as small as
those of the examples the calls cost more than the arithmetic.
"""

from __future__ import annotations

import copy
import math
from typing import Generic, TypeVar

import torch
from torch import nn

__all__ = ["Adam", "SlowCopy", "Stepper", "fading_mean"]

Network = TypeVar("Network", bound=nn.Module)


class Adam:
    """Kingma and Ba 2015, algorithm 1, on one vector: ``torch.optim`` takes two seconds to load, and longer to step.

    Parameters
    ----------
    vector : Tensor, shape (P,)
        Changed in place.
    beta1, beta2, eps : float
        As there.
    """

    def __init__(self, vector: torch.Tensor, *, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> None:
        self._vector = vector
        self._mean, self._square = torch.zeros_like(vector), torch.zeros_like(vector)
        self._beta1, self._beta2, self._eps = beta1, beta2, eps
        self._steps = 0

    def step(self, gradient: torch.Tensor, learning_rate: float) -> None:
        """Take one step against a gradient of the vector's shape."""
        self._steps += 1
        self._mean.lerp_(gradient, 1 - self._beta1)
        self._square.mul_(self._beta2).addcmul_(gradient, gradient, value=1 - self._beta2)
        scale = (self._square / (1 - self._beta2**self._steps)).sqrt_().add_(self._eps)
        self._vector.addcdiv_(self._mean, scale, value=-learning_rate / (1 - self._beta1**self._steps))


class Stepper:
    """Steps the parameters of a network down the gradient of a loss.

    Parameters
    ----------
    network : Module
        Its parameters become views of one vector.
    clip : float, optional
        Largest norm of the gradient.

    Attributes
    ----------
    vector : Tensor, shape (P,)
        The parameters.
    """

    def __init__(self, network: nn.Module, *, clip: float = math.inf) -> None:
        self._parameters = list(network.parameters())
        self.vector = _as_vector(network)
        self._adam = Adam(self.vector)
        self._clip = clip

    def step(self, loss: torch.Tensor, learning_rate: float) -> None:
        """Take one step down the gradient of a loss."""
        gradients = torch.autograd.grad(loss, self._parameters)
        gradient = torch.cat([part.flatten() for part in gradients])
        if self._clip < math.inf:
            gradient *= (self._clip / gradient.norm()).clamp(max=1)
        self._adam.step(gradient, learning_rate)


class SlowCopy(Generic[Network]):
    """A network that follows another one slowly: a target network (Lillicrap et al. 2016).

    Parameters
    ----------
    network : Module
        What it starts as.
    stepper : Stepper
        Of that network.
    tau : float
        Share of it that `follow` takes on.

    Attributes
    ----------
    network : Module
        The copy; it needs no gradients.
    """

    def __init__(self, network: Network, stepper: Stepper, tau: float) -> None:
        self.network = copy.deepcopy(network).requires_grad_(False)
        self._slow, self._fast, self._tau = _as_vector(self.network), stepper.vector, tau

    def follow(self) -> None:
        """Take on a share of the network."""
        self._slow.lerp_(self._fast, self._tau)


def _as_vector(network: nn.Module) -> torch.Tensor:
    """Lay the parameters of a network side by side in one vector, and return it."""
    vector = nn.utils.parameters_to_vector(network.parameters()).detach()
    nn.utils.vector_to_parameters(vector, network.parameters())  # from here on they are views of it
    return vector


def fading_mean(mean: float, value: torch.Tensor) -> float:
    """Take one more value into a mean in which each weighs 1 % less than the next; NaN is none yet."""
    return value.item() if math.isnan(mean) else 0.99 * mean + 0.01 * value.item()
