#include "batches.hpp"

#include <stdexcept>

namespace ringback::bindings {

namespace {

PyStructSequence_Field kTransitionFields[] = {
    {"observations", "(B, *D): the observations, in the space's structure"},
    {"actions", "(B, Da): the actions, in the space's structure"},
    {"rewards", "(B, 1) float32: the reward; with n_step the discounted sum of up to n rewards"},
    {"next_observations", "(B, *D): the observation after the (last summed) step, also at both kinds of end"},
    {"dones", "(B, 1) float32: 1 where the (last summed) step terminated; 0 at a time limit, which bootstraps"},
    {"terminations", "(B, 1) bool: the same as a flag"},
    {"truncations", "(B, 1) bool: the (last summed) step was cut off"},
    {"discounts", "(B, 1) float32, with gamma= only: gamma**m * (1 - terminated) for m summed rewards"},
    {"n_steps", "(B, 1) int64, with gamma= only: m, the number of rewards summed"},
    {"ids", "(B,) int64: the handles of the steps"},
    {"extras", "dict of (B, *shape): the named extra columns"},
    {"weights", "(B, 1) float32, of prioritised draws: the importance weights"},
    {"sources", "(B,) int64, of mixed draws: which source each row is from"},
    {nullptr, nullptr}};

PyStructSequence_Field kSequenceFields[] = {
    {"observations", "(B, L, *D): the observations, in the space's structure"},
    {"actions", "(B, L, Da): the actions, in the space's structure"},
    {"rewards", "(B, L, 1) float32: the rewards"},
    {"dones", "(B, L, 1) float32: 1 where the step terminated (the last of a window, if any)"},
    {"terminations", "(B, L, 1) bool: the same as a flag"},
    {"truncations", "(B, L, 1) bool: the step was cut off"},
    {"is_first", "(B, L, 1) bool: the first step of an episode, never merely the first row of the window"},
    {"is_last", "(B, L, 1) bool: the newest step of an episode, ended or still open"},
    {"ids", "(B, L) int64: the handles of the steps"},
    {"start_ids", "(B,) int64: the handle of each window's first step"},
    {"extras", "dict of (B, L, *shape): the named extra columns"},
    {"valid", "(B, L, 1) bool, where windows may be shorter: the row is there"},
    {"mask", "(B, L, 1) bool, where windows may be shorter: the row is to be trained on"},
    {"lengths", "(B, 1) int64, where windows may be shorter: rows to be trained on"},
    {"burn_in_lengths", "(B, 1) int64, with burn_in= only: rows before them"},
    {"next_observations", "(B, L, *D), if asked for or with n_step: the observation after the (last summed) step"},
    {"discounts", "(B, L, 1) float32, with gamma= only: gamma**m * (1 - terminated) for m summed rewards"},
    {"n_steps", "(B, L, 1) int64, with gamma= only: m, the number of rewards summed"},
    {"is_terminal", "(B, L, 1) bool, by arrivals only: the observation is a terminal one"},
    {"start_state", "(B, *shape), with start_state= only: that extra at the first row of each window"},
    {"weights", "(B, 1) float32, of prioritised draws: the importance weights"},
    {"sources", "(B,) int64, of mixed draws: which source each window is from"},
    {nullptr, nullptr}};

PyStructSequence_Desc kTransitions = {
    "ringback.Transitions",
    "A batch of single steps; unpacks into (observations, actions, rewards, next_observations, "
    "dones) and has more fields by name.",
    kTransitionFields, 5};
PyStructSequence_Desc kSequences = {"ringback.Sequences",
                                    "A batch of windows of consecutive steps; unpacks into (observations, "
                                    "actions, rewards, dones) and has more fields by name.",
                                    kSequenceFields, 4};

PyTypeObject* made(PyStructSequence_Desc& description) {
    PyTypeObject* const type = PyStructSequence_NewType(&description);
    if (type == nullptr) throw pybind11::error_already_set();
    return type;
}

}  // namespace

PyTypeObject* transitions_type() {
    static PyTypeObject* const type = made(kTransitions);
    return type;
}

PyTypeObject* sequences_type() {
    static PyTypeObject* const type = made(kSequences);
    return type;
}

const char* name_of(TransitionField field) noexcept { return kTransitionFields[static_cast<int>(field)].name; }
const char* name_of(SequenceField field) noexcept { return kSequenceFields[static_cast<int>(field)].name; }

}  // namespace ringback::bindings
