#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "ringback/schema.hpp"

namespace ringback::bindings {

// The shape of a nested value: a leaf, or a dict or tuple of structures. Leaves are matched by name, never by position.
class Structure {
  public:
    // From Python: ("leaf", path, dtype, shape) | ("dict", path, ((key, node), ...)) | ("tuple", path, (node, ...)).
    // Appends the leaves to `fields`, in order.
    Structure(pybind11::handle spec, std::vector<Field>& fields);

    // Calls visit(field index, leaf) for each leaf of a value with this structure. Throws TypeMistake or
    // std::invalid_argument that names the place; `prefix` goes before its path.
    template <class Visit>
    void flatten(PyObject* value, const char* prefix, Visit&& visit) const {
        if (kind_ == Kind::leaf) return visit(field_, value);
        const pybind11::object held = kind_ == Kind::dict ? check_dict(value, prefix) : check_tuple(value, prefix);
        for (std::size_t i = 0; i < children_.size(); ++i) {
            const pybind11::object item = child(held.ptr(), i, prefix);
            children_[i].flatten(item.ptr(), prefix, visit);
        }
    }

    // The same structure with leaf(field index), a new reference each, at the leaves.
    template <class Leaf>
    pybind11::object build(Leaf&& leaf) const {
        if (kind_ == Kind::leaf) return pybind11::reinterpret_steal<pybind11::object>(leaf(field_));
        if (kind_ == Kind::dict) {
            pybind11::dict built;
            for (std::size_t i = 0; i < children_.size(); ++i) built[keys_[i]] = children_[i].build(leaf);
            return built;
        }
        pybind11::tuple built(children_.size());
        for (std::size_t i = 0; i < children_.size(); ++i) built[i] = children_[i].build(leaf);
        return built;
    }

    // Of a dict: the same without one of its children; of that child alone.
    template <class Leaf>
    pybind11::object build_without(std::size_t skipped, Leaf&& leaf) const {
        pybind11::dict built;
        for (std::size_t i = 0; i < children_.size(); ++i)
            if (i != skipped) built[keys_[i]] = children_[i].build(leaf);
        return built;
    }
    const Structure& child_at(std::size_t i) const noexcept { return children_[i]; }
    std::size_t size() const noexcept { return children_.size(); }
    // Of a dict: the value of one of its keys.
    pybind11::object item_of(PyObject* value, std::size_t i) const { return child(value, i, ""); }
    // Of a dict: the place of a key, or as many as there are.
    std::size_t find(const std::string& key) const;
    // The fields of its leaves: [first, end).
    std::pair<std::size_t, std::size_t> leaves() const;

    const std::string& path() const noexcept { return path_; }

  private:
    enum class Kind { leaf, dict, tuple };

    pybind11::object check_dict(PyObject* value, const char* prefix) const;
    pybind11::object check_tuple(PyObject* value, const char* prefix) const;
    pybind11::object child(PyObject* value, std::size_t i, const char* prefix) const;

    Kind kind_ = Kind::leaf;
    std::size_t field_ = 0;
    std::string path_;  // such as "observation/camera"
    std::vector<pybind11::object> keys_;
    std::vector<Structure> children_;
};

// One part of a step (the observation, the action, the extras): its leaves and how they nest.
struct Part {
    explicit Part(pybind11::handle spec) : structure(spec, fields) {}

    std::vector<Field> fields;  // before the structure, which appends them
    Structure structure;
};

// The parts of a step that every batch hands out, in the schema's order.
struct Parts {
    const Schema& schema;
    const Part &observation, &action, &extras;
};

}  // namespace ringback::bindings
