#include <cstring>
#include <numeric>

#include "arguments.hpp"
#include "errors.hpp"
#include "inputs.hpp"
#include "outputs.hpp"
#include "replay.hpp"

// The state of a buffer is content, not layout: a header (a dict) and parts that hold the live steps by number.
namespace py = pybind11;

namespace ringback::bindings {

namespace {

py::object key_object(const StreamKey& key) {
    if (const auto* number = std::get_if<std::int64_t>(&key)) return py::int_(*number);
    return py::str(std::get<std::string>(key));
}

StreamKey key_of(py::handle object) {
    if (PyUnicode_Check(object.ptr())) return read_text(object.ptr(), "state: a stream");
    return read_integer(object.ptr(), "state: a stream");
}

py::object item(const py::dict& state, const char* name) {
    if (!state.contains(name))
        throw std::invalid_argument(std::string("state must have the field '") + name + "', got none");
    return state[name];
}

std::int64_t integer(const py::dict& state, const char* name) { return read_integer(item(state, name).ptr(), name); }

std::size_t length_of(const py::object& array, const char* name) {
    const Py_ssize_t length = PyObject_Size(array.ptr());
    if (length < 0) {
        PyErr_Clear();
        throw TypeMistake(std::string("state: ") + name + " must be an array, got " + shown(array.ptr()));
    }
    return static_cast<std::size_t>(length);
}

// An array of exactly `count` numbers.
template <class T>
std::vector<T> numbers(const py::dict& state, const char* name, DType dtype, std::size_t count) {
    const py::object array = item(state, name);
    Schema one({{std::string("state: ") + name, dtype, {}, 0}}, {}, {});
    Inputs inputs(one);
    const auto* data = reinterpret_cast<const T*>(inputs.rows(0, array.ptr(), count));
    return {data, data + count};
}

Split split_of(PyObject* value) {
    if (!PyTuple_Check(value) || PyTuple_GET_SIZE(value) != 4)
        throw TypeMistake("state: split must be a tuple (groups, seed, block, gap), got " + shown(value));
    const std::uint64_t seed = PyLong_AsUnsignedLongLongMask(PyTuple_GET_ITEM(value, 1));
    if (PyErr_Occurred()) throw py::error_already_set();
    return {read_integer(PyTuple_GET_ITEM(value, 0), "state: split[0]"), seed,
            read_integer(PyTuple_GET_ITEM(value, 2), "state: split[2]"),
            read_integer(PyTuple_GET_ITEM(value, 3), "state: split[3]")};
}

}  // namespace

py::dict Replay::state_header() const {
    StepStore::State state;
    Rng::State rng{};
    std::int64_t sampled = 0;
    std::uint64_t version = 0;
    double largest = 0.0;
    core_.read(0, [&](const Core& core) {
        const std::lock_guard guard(core.rng_mutex);
        if (core.priorities) largest = core.priorities->largest_ever();
        state = core.store->state();
        rng = core.rng.state();
        sampled = core.sampled;
        version = core.version;
    });
    py::list schema;
    for (const Field& field : schema_.fields())
        schema.append(py::make_tuple(field.name,
                                     py::str(py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(
                                         PyArray_DescrFromType(array_type(field.dtype).number)))),
                                     py::tuple(py::cast(field.shape))));
    std::vector<std::uint32_t> slot;
    std::vector<std::int64_t> birth, first, end, unit, number;
    std::vector<std::uint8_t> open, numbered;
    py::list streams;
    for (const auto& e : state.episodes) {
        slot.push_back(e.slot);
        birth.push_back(e.birth);
        first.push_back(e.first);
        end.push_back(e.end);
        unit.push_back(e.unit);
        number.push_back(e.number);
        open.push_back(e.open);
        numbered.push_back(e.numbered);
        streams.append(e.has_stream ? key_object(e.stream) : py::object(py::none()));
    }
    py::list dormant;
    for (const auto& d : state.dormant) dormant.append(py::make_tuple(key_object(d.stream), d.next_t, d.unit));
    py::dict header;
    header["capacity"] = capacity_;
    header["schema"] = schema;
    header["written"] = state.written;
    header["births"] = state.births;
    header["units"] = state.units;
    header["kept_successors"] = state.kept;
    header["split"] = py::make_tuple(state.split.groups, state.split.seed, state.split.block, state.split.gap);
    header["sampled"] = sampled;
    header["generator"] = array_of(DType::u64, std::vector<std::uint64_t>(rng.begin(), rng.end()));
    header["episode_slot"] = array_of(DType::u32, slot);
    header["episode_birth"] = array_of(DType::i64, birth);
    header["episode_first"] = array_of(DType::i64, first);
    header["episode_end"] = array_of(DType::i64, end);
    header["episode_unit"] = array_of(DType::i64, unit);
    header["episode_number"] = array_of(DType::i64, number);
    header["episode_open"] = array_of(DType::b1, open);
    header["episode_numbered"] = array_of(DType::b1, numbered);
    header["episode_stream"] = streams;
    header["dormant"] = dormant;
    header["free_slots"] = array_of(DType::u32, state.free_episodes);
    if (rule_) header["largest_priority"] = largest;
    header["_version"] = version;
    return header;
}

py::dict Replay::state_rows(std::int64_t begin, std::int64_t count, std::uint64_t version) const {
    Outputs outputs;
    const std::int64_t rows[] = {count};
    std::vector<std::byte*> fields;
    for (const Field& field : schema_.fields()) {
        std::vector<std::int64_t> shape{count};
        shape.insert(shape.end(), field.shape.begin(), field.shape.end());
        outputs.add_exact(array_type(field.dtype), shape);
    }
    const std::size_t t = outputs.add_exact(array_type(DType::i64), rows),
                      episode = outputs.add_exact(array_type(DType::u32), rows);
    const std::size_t flags = outputs.add_exact(array_type(DType::u8), rows),
                      owned = outputs.add_exact(array_type(DType::b1), rows);
    const std::size_t masses = rule_ ? outputs.add_exact(array_type(DType::f64), rows) : 0;
    outputs.allocate();
    for (std::size_t f = 0; f < schema_.fields().size(); ++f) fields.push_back(outputs.data(f));
    const auto size = static_cast<std::size_t>(count);
    const auto check = [&](const Core& core) {
        if (core.version != version)
            throw std::runtime_error("the buffer must not change while its state is read, got a write");
    };
    core_.read(outputs.bytes(), [&](const Core& core) {
        check(core);
        core.store->read_rows(begin, size,
                              {fields,
                               {outputs.as<std::int64_t>(t), size},
                               {outputs.as<std::uint32_t>(episode), size},
                               {outputs.as<std::uint8_t>(flags), size},
                               {outputs.as<std::uint8_t>(owned), size}});
        if (!core.priorities) return;
        std::vector<std::int64_t> numbers(size);
        std::iota(numbers.begin(), numbers.end(), begin);
        core.priorities->read(*core.store, numbers, {outputs.as<double>(masses), size});
    });

    std::int64_t own = 0;
    for (std::size_t i = 0; i < size; ++i) own += outputs.as<std::uint8_t>(owned)[i];
    Outputs successors;
    for (std::size_t leaf = 0; leaf < schema_.observation_count(); ++leaf) {
        std::vector<std::int64_t> shape{own};
        shape.insert(shape.end(), schema_.field(leaf).shape.begin(), schema_.field(leaf).shape.end());
        successors.add_exact(array_type(schema_.field(leaf).dtype), shape);
    }
    successors.allocate();
    core_.read(successors.bytes(), [&](const Core& core) {
        check(core);
        std::size_t next = 0;
        for (std::size_t i = 0; i < size; ++i) {
            if (outputs.as<std::uint8_t>(owned)[i] == 0) continue;
            const std::uint32_t row = core.store->row_of_number(begin + static_cast<std::int64_t>(i));
            for (std::size_t leaf = 0; leaf < schema_.observation_count(); ++leaf) {
                const std::size_t bytes = schema_.place(leaf).bytes;
                std::memcpy(successors.data(leaf) + next * bytes, core.store->successor(row, leaf), bytes);
            }
            ++next;
        }
    });

    py::dict columns, successor_columns, part;
    for (std::size_t f = 0; f < schema_.fields().size(); ++f)
        columns[py::str(schema_.field(f).name)] = py::reinterpret_steal<py::object>(outputs.take(f, {}));
    for (std::size_t leaf = 0; leaf < schema_.observation_count(); ++leaf)
        successor_columns[py::str(schema_.field(leaf).name)] =
            py::reinterpret_steal<py::object>(successors.take(leaf, {}));
    part["fields"] = columns;
    part["successors"] = successor_columns;
    part["t"] = py::reinterpret_steal<py::object>(outputs.take(t, {}));
    part["episode"] = py::reinterpret_steal<py::object>(outputs.take(episode, {}));
    part["flags"] = py::reinterpret_steal<py::object>(outputs.take(flags, {}));
    if (rule_) part["priorities"] = py::reinterpret_steal<py::object>(outputs.take(masses, {}));
    part["owned"] = py::reinterpret_steal<py::object>(outputs.take(owned, {}));
    return part;
}

void Replay::set_state(py::dict header, py::iterable parts, bool close_open) {
    if (integer(header, "capacity") != capacity_)
        throw std::invalid_argument("state must be of a buffer of the same capacity (" + std::to_string(capacity_) +
                                    "), got " + std::to_string(integer(header, "capacity")));
    StepStore::State state;
    state.written = integer(header, "written");
    state.births = integer(header, "births");
    state.units = integer(header, "units");
    state.kept = integer(header, "kept_successors");
    state.split = split_of(item(header, "split").ptr());
    const std::int64_t sampled = integer(header, "sampled");
    const std::size_t count = length_of(item(header, "episode_slot"), "episode_slot");
    const auto slot = numbers<std::uint32_t>(header, "episode_slot", DType::u32, count);
    const auto birth = numbers<std::int64_t>(header, "episode_birth", DType::i64, count);
    const auto first = numbers<std::int64_t>(header, "episode_first", DType::i64, count);
    const auto end = numbers<std::int64_t>(header, "episode_end", DType::i64, count);
    const auto unit = numbers<std::int64_t>(header, "episode_unit", DType::i64, count);
    const auto number = numbers<std::int64_t>(header, "episode_number", DType::i64, count);
    const auto open = numbers<std::uint8_t>(header, "episode_open", DType::b1, count);
    const auto numbered = numbers<std::uint8_t>(header, "episode_numbered", DType::b1, count);
    const py::object streams = item(header, "episode_stream");
    if (!PyList_Check(streams.ptr()) || static_cast<std::size_t>(PyList_GET_SIZE(streams.ptr())) != count)
        throw std::invalid_argument("state: episode_stream must be a list with one entry an episode, got " +
                                    shown(streams.ptr()));
    for (std::size_t i = 0; i < count; ++i) {
        const py::handle stream = PyList_GET_ITEM(streams.ptr(), static_cast<Py_ssize_t>(i));
        const bool has = !stream.is_none();
        state.episodes.push_back({slot[i], birth[i], first[i], end[i], unit[i], number[i], open[i] != 0,
                                  numbered[i] != 0, has, has ? key_of(stream) : StreamKey()});
    }
    const py::object dormant = item(header, "dormant");
    if (!PyList_Check(dormant.ptr())) throw TypeMistake("state: dormant must be a list, got " + shown(dormant.ptr()));
    for (const py::handle entry : dormant) {
        if (!PyTuple_Check(entry.ptr()) || PyTuple_GET_SIZE(entry.ptr()) != 3)
            throw TypeMistake("state: dormant must hold tuples (stream, next t, unit), got " + shown(entry.ptr()));
        state.dormant.push_back({key_of(PyTuple_GET_ITEM(entry.ptr(), 0)),
                                 read_integer(PyTuple_GET_ITEM(entry.ptr(), 1), "state: a dormant stream's next t"),
                                 read_integer(PyTuple_GET_ITEM(entry.ptr(), 2), "state: a dormant stream's unit")});
    }
    const std::size_t free_count = length_of(item(header, "free_slots"), "free_slots");
    state.free_episodes = numbers<std::uint32_t>(header, "free_slots", DType::u32, free_count);
    const auto words = numbers<std::uint64_t>(header, "generator", DType::u64, 4);

    std::unique_ptr<StepStore> store = new_store();
    std::unique_ptr<Priorities> priorities = new_priorities();
    std::vector<double> masses;  // of all steps: whether one is a start is known once all are there
    store->restore(state);
    for (const py::handle part : parts) {
        if (!PyDict_Check(part.ptr())) throw TypeMistake("state: parts must be dicts, got " + shown(part.ptr()));
        const auto rows = py::reinterpret_borrow<py::dict>(part);
        const std::size_t size = length_of(item(rows, "t"), "t");
        const auto t = numbers<std::int64_t>(rows, "t", DType::i64, size);
        const auto episode = numbers<std::uint32_t>(rows, "episode", DType::u32, size);
        const auto flags = numbers<std::uint8_t>(rows, "flags", DType::u8, size);
        const auto owned = numbers<std::uint8_t>(rows, "owned", DType::b1, size);
        if (rule_) {
            const auto of_part = numbers<double>(rows, "priorities", DType::f64, size);
            masses.insert(masses.end(), of_part.begin(), of_part.end());
        }
        std::size_t own = 0;
        for (const std::uint8_t o : owned) own += o != 0;
        const py::object columns = item(rows, "fields"), successor_columns = item(rows, "successors");
        if (!PyDict_Check(columns.ptr()) || !PyDict_Check(successor_columns.ptr()))
            throw TypeMistake("state: fields and successors must be dicts, got " + shown(columns.ptr()));
        Inputs inputs(schema_);
        Pointers fields(schema_.fields().size()), successors(schema_.observation_count());
        for (std::size_t f = 0; f < schema_.fields().size(); ++f)
            fields[f] = inputs.rows(
                f, item(py::reinterpret_borrow<py::dict>(columns), schema_.field(f).name.c_str()).ptr(), size);
        for (std::size_t leaf = 0; leaf < schema_.observation_count(); ++leaf)
            successors[leaf] = inputs.rows(
                leaf, item(py::reinterpret_borrow<py::dict>(successor_columns), schema_.field(leaf).name.c_str()).ptr(),
                own, "next_");
        store->restore_rows(
            {size, fields.span(), successors.span(), own, t.data(), episode.data(), flags.data(), owned.data()});
    }
    store->restore_done();
    if (priorities) {
        priorities->restore(*store, store->oldest(), masses);
        const py::object largest = item(header, "largest_priority");
        if (!PyFloat_Check(largest.ptr()))
            throw TypeMistake("state: largest_priority must be a float, got " + shown(largest.ptr()));
        priorities->restore_largest_ever(PyFloat_AS_DOUBLE(largest.ptr()));
    }
    if (close_open) store->end_all_episodes();
    core_.write(Lock::kLarge, [&](Core& core) {
        core.store.swap(store);
        core.priorities.swap(priorities);
        core.store->tell(core.priorities.get());
        core.rng = Rng(Rng::State{words[0], words[1], words[2], words[3]});
        core.sampled = sampled;
        ++core.version;
    });
}

}  // namespace ringback::bindings
