"""What lies between episodes and a module: pieces, called one after the other by a pipeline."""

from __future__ import annotations

from .actions import ActionsToSpace, SampleActions
from .add_columns import AddColumns, AddNextObservations
from .batching import BatchItems, ListItems, ToNumpy, ToTensor, Unbatch
from .columns import BatchedArray, Columns, Rows, stacked
from .connector import Connector
from .flatten import Flatten
from .frame_stack import FrameStack
from .mean_std_filter import MeanStdFilter
from .observations import AddObservations
from .one_step import AddOneStep
from .pipeline import ConnectorPipeline
from .previous import PreviousActionsRewards
from .returns import ComputeReturnsToGo, GeneralAdvantageEstimation, NStepReturns
from .states import AddStates, AddTimeDim, RemoveTimeDim

# The same pieces under the names that they have in RLlib, with RLlib's keywords. Where a piece has positional arguments
# of its own (ToTensor, Flatten, FrameStack, PreviousActionsRewards), spaces must be named: RLlib puts them first.
ConnectorV2 = Connector
ConnectorPipelineV2 = ConnectorPipeline
AddColumnsFromEpisodesToTrainBatch = AddColumns
AddNextObservationsFromEpisodesToTrainBatch = AddNextObservations
AddObservationsFromEpisodesToBatch = AddObservations
AddOneTsToEpisodesAndTruncate = AddOneStep
AddStatesFromEpisodesToBatch = AddStates
AddTimeDimToBatchAndZeroPad = AddTimeDim
BatchIndividualItems = BatchItems
FlattenObservations = Flatten
FrameStacking = FrameStack
GetActions = SampleActions
ListifyDataForVectorEnv = ListItems
NormalizeAndClipActions = ActionsToSpace
NumpyToTensor = ToTensor
PrevActionsPrevRewards = PreviousActionsRewards
RemoveSingleTsTimeRankFromBatch = RemoveTimeDim
TensorToNumpy = ToNumpy
UnBatchToIndividualItems = Unbatch

__all__ = [
    "ActionsToSpace",
    "AddColumns",
    "AddColumnsFromEpisodesToTrainBatch",
    "AddNextObservations",
    "AddNextObservationsFromEpisodesToTrainBatch",
    "AddObservations",
    "AddObservationsFromEpisodesToBatch",
    "AddOneStep",
    "AddOneTsToEpisodesAndTruncate",
    "AddStates",
    "AddStatesFromEpisodesToBatch",
    "AddTimeDim",
    "AddTimeDimToBatchAndZeroPad",
    "BatchIndividualItems",
    "BatchItems",
    "BatchedArray",
    "Columns",
    "ComputeReturnsToGo",
    "Connector",
    "ConnectorPipeline",
    "ConnectorPipelineV2",
    "ConnectorV2",
    "Flatten",
    "FlattenObservations",
    "FrameStack",
    "FrameStacking",
    "GeneralAdvantageEstimation",
    "GetActions",
    "ListItems",
    "ListifyDataForVectorEnv",
    "MeanStdFilter",
    "NStepReturns",
    "NormalizeAndClipActions",
    "NumpyToTensor",
    "PrevActionsPrevRewards",
    "PreviousActionsRewards",
    "RemoveSingleTsTimeRankFromBatch",
    "RemoveTimeDim",
    "Rows",
    "SampleActions",
    "TensorToNumpy",
    "ToNumpy",
    "ToTensor",
    "UnBatchToIndividualItems",
    "Unbatch",
    "stacked",
]
