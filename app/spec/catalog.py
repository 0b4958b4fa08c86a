"""What a spec can choose from, by name: for the catalog of the API, its schemas and its examples."""

from typing import Final

from app.spec.base import SpecModel
from app.spec.layers import Activation, Dense, Dropout
from app.spec.model import Linear, Mlp, Sequential
from app.spec.training import Adam, Constant, Cosine, Sgd

MODELS: Final[dict[str, type[SpecModel]]] = {"linear": Linear, "mlp": Mlp, "sequential": Sequential}
LAYERS: Final[dict[str, type[SpecModel]]] = {"dense": Dense, "activation": Activation, "dropout": Dropout}
OPTIMIZERS: Final[dict[str, type[SpecModel]]] = {"sgd": Sgd, "adam": Adam}
SCHEDULES: Final[dict[str, type[SpecModel]]] = {"constant": Constant, "cosine": Cosine}
