#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "naive_store.hpp"
#include "ringback/rng.hpp"
#include "ringback/schema.hpp"
#include "ringback/step_store.hpp"

// Schemas and counting data for the tests of the store and of what reads it.
namespace ringback::twin {

inline Field field(std::string name, DType dtype, std::vector<std::int64_t> shape = {}) {
    return {std::move(name), dtype, std::move(shape), 0};
}

// Small vectors, as most control tasks have.
inline Schema vectors() { return {{field("observation", DType::f32, {3})}, {field("action", DType::f32, {2})}, {}}; }

// Several leaves of every width, odd sizes, a column (2100 bytes) among the observation's leaves.
inline Schema camera_and_state() {
    return {{field("observation/state", DType::f32, {5}), field("observation/camera", DType::u8, {30, 70}),
             field("observation/half", DType::f16, {3})},
            {field("action", DType::i64)},
            {field("state_in", DType::f32, {4}), field("mask", DType::b1, {3})}};
}

// Scalars only, and an extra that is a column (2400 bytes).
inline Schema scalars_and_a_large_extra() {
    return {{field("observation/x", DType::f64), field("observation/n", DType::u16)},
            {field("action/a", DType::i8), field("action/b", DType::u32, {1})},
            {field("logits", DType::f32, {600})}};
}

// Nothing of the observation lies in the record.
inline Schema images_only() { return {{field("observation", DType::u8, {2048})}, {field("action", DType::u8)}, {}}; }

// Two columns in the observation, one in the action.
inline Schema columns_everywhere() {
    return {{field("observation/left", DType::u8, {2049}), field("observation/depth", DType::f64, {256})},
            {field("action", DType::f32, {513})},
            {}};
}

// The largest record without a column, so that a page holds few rows.
inline Schema wide_record() {
    return {{field("observation", DType::f32, {500})}, {field("action", DType::f32, {100})}, {}};
}

// Rows of 1, 3, 16, 17, 512 and 513 bytes: on and beside the sizes at which copying changes its way.
inline Schema odd_sizes() {
    return {{field("observation/one", DType::u8), field("observation/three", DType::u8, {3}),
             field("observation/sixteen", DType::u8, {16})},
            {field("action/seventeen", DType::u8, {17}), field("action/half", DType::u8, {512})},
            {field("more", DType::u8, {513}), field("flag", DType::b1)}};
}

inline std::vector<Schema> schemas() {
    return {vectors(),     camera_and_state(), scalars_and_a_large_extra(),
            images_only(), odd_sizes(),        columns_everywhere(),
            wide_record()};
}

// Element k of a field that counts: different for different counts and fields.
inline void put_element(DType dtype, std::byte* at, std::uint64_t value) {
    switch (dtype) {
        case DType::b1: {
            *at = static_cast<std::byte>(value & 1);
            return;
        }
        case DType::f16: {
            const auto bits = static_cast<std::uint16_t>(0x3c00 + value % 0x4000);  // finite, from 1 up
            std::memcpy(at, &bits, sizeof bits);
            return;
        }
        case DType::f32: {
            const auto number = static_cast<float>(value);
            std::memcpy(at, &number, sizeof number);
            return;
        }
        case DType::f64: {
            const auto number = static_cast<double>(value);
            std::memcpy(at, &number, sizeof number);
            return;
        }
        default:
            std::memcpy(at, &value, size_of(dtype));  // the low bytes: the tests run on little-endian machines
    }
}

// The bytes of a field that count: from `count` up, three apart, so that neighbours of a row are seen when they slip
// in.
inline std::string counting(const Field& field, std::uint64_t count) {
    std::string bytes(field.bytes, '\0');
    const std::size_t width = size_of(field.dtype);
    for (std::size_t k = 0; k * width < bytes.size(); ++k)
        put_element(field.dtype, reinterpret_cast<std::byte*>(bytes.data()) + k * width, count + 3 * k);
    return bytes;
}

inline Leaves counting_observation(const Schema& schema, std::uint64_t count) {
    Leaves leaves;
    for (std::size_t leaf = 0; leaf < schema.observation_count(); ++leaf)
        leaves.push_back(counting(schema.field(leaf), count + 17 * leaf));
    return leaves;
}

// A step whose every field counts from `count`, its successor from `count + 1`. The reward is `count` itself.
inline Given counting_step(const Schema& schema, std::uint64_t count) {
    Given given{counting_observation(schema, count), counting_observation(schema, count + 1)};
    for (std::size_t f = schema.observation_count(); f < schema.fields().size(); ++f)
        given.fields.push_back(counting(schema.field(f), f == schema.reward_index() ? count : count + 29 * f));
    return given;
}

// Makes the first element of the first floating-point leaf `value` (NaN, -0, ...). False: there is no such leaf.
inline bool put_float(const Schema& schema, Leaves& observation, double value) {
    for (std::size_t leaf = 0; leaf < schema.observation_count(); ++leaf) {
        char* const at = observation[leaf].data();
        if (schema.field(leaf).dtype == DType::f32) {
            const auto number = static_cast<float>(value);
            std::memcpy(at, &number, sizeof number);
            return true;
        }
        if (schema.field(leaf).dtype == DType::f64) {
            std::memcpy(at, &value, sizeof value);
            return true;
        }
    }
    return false;
}

// Owns the columns that StepRows points to.
class Columns {
  public:
    Columns(const Schema& schema, const std::vector<Given>& steps) : count_(steps.size()) {
        fields_.resize(schema.fields().size());
        successors_.resize(schema.observation_count());
        for (const Given& given : steps) {
            for (std::size_t f = 0; f < fields_.size(); ++f) fields_[f] += given.fields[f];
            for (std::size_t leaf = 0; leaf < successors_.size(); ++leaf) successors_[leaf] += given.successor[leaf];
            terminated_.push_back(given.terminated);
            truncated_.push_back(given.truncated);
        }
        for (const auto& bytes : fields_) field_pointers_.push_back(reinterpret_cast<const std::byte*>(bytes.data()));
        for (const auto& bytes : successors_)
            successor_pointers_.push_back(reinterpret_cast<const std::byte*>(bytes.data()));
    }

    StepRows rows() const {
        return {count_, field_pointers_, successor_pointers_, terminated_.data(), truncated_.data()};
    }

  private:
    std::size_t count_;
    Leaves fields_, successors_;
    std::vector<const std::byte*> field_pointers_, successor_pointers_;
    std::vector<std::uint8_t> terminated_, truncated_;
};

// The whole content of a store as plain vectors: what a checkpoint would hold.
struct Saved {
    StepStore::State state;
    Leaves fields, successors;
    std::vector<std::int64_t> t;
    std::vector<std::uint32_t> episode;
    std::vector<std::uint8_t> flags, owned;
};

inline Saved save(const StepStore& store) {
    const Schema& schema = store.schema();
    const auto count = static_cast<std::size_t>(store.live());
    Saved saved{store.state(), Leaves(schema.fields().size()), Leaves(schema.observation_count()), {}, {}, {}, {}};
    std::vector<std::byte*> fields;
    for (std::size_t f = 0; f < saved.fields.size(); ++f) {
        saved.fields[f].resize(count * schema.field(f).bytes);
        fields.push_back(reinterpret_cast<std::byte*>(saved.fields[f].data()));
    }
    saved.t.resize(count);
    saved.episode.resize(count);
    saved.flags.resize(count);
    saved.owned.resize(count);
    store.read_rows(store.oldest(), count, {fields, saved.t, saved.episode, saved.flags, saved.owned});
    for (std::size_t i = 0; i < count; ++i) {
        if (saved.owned[i] == 0) continue;
        const std::uint32_t row = store.row_at_offset(static_cast<std::int64_t>(i));
        for (std::size_t leaf = 0; leaf < saved.successors.size(); ++leaf)
            saved.successors[leaf].append(reinterpret_cast<const char*>(store.successor(row, leaf)),
                                          schema.field(leaf).bytes);
    }
    return saved;
}

// Restores `part` rows a call. Throws what the store throws.
inline std::unique_ptr<StepStore> restored(const Schema& schema, std::int64_t capacity, Mismatch mismatch,
                                           const Saved& saved, std::size_t part) {
    auto store = std::make_unique<StepStore>(schema, capacity, mismatch);
    store->restore(saved.state);
    std::size_t successor = 0;
    const std::size_t successors = saved.successors[0].size() / schema.field(0).bytes;
    for (std::size_t i = 0; i < saved.t.size(); i += part) {
        StepStore::RowContent rows;
        rows.count = std::min(part, saved.t.size() - i);
        std::vector<const std::byte*> fields, owned_successors;
        for (std::size_t f = 0; f < saved.fields.size(); ++f)
            fields.push_back(reinterpret_cast<const std::byte*>(saved.fields[f].data()) + i * schema.field(f).bytes);
        for (std::size_t leaf = 0; leaf < saved.successors.size(); ++leaf)
            owned_successors.push_back(reinterpret_cast<const std::byte*>(saved.successors[leaf].data()) +
                                       successor * schema.field(leaf).bytes);
        for (std::size_t k = i; k < i + rows.count; ++k) rows.successor_count += saved.owned[k] != 0 ? 1 : 0;
        rows.successor_count = std::min(rows.successor_count, successors - successor);  // a damaged save may lack some
        rows.fields = fields;
        rows.successors = owned_successors;
        rows.t = saved.t.data() + i;
        rows.episode = saved.episode.data() + i;
        rows.flags = saved.flags.data() + i;
        rows.owned = saved.owned.data() + i;
        store->restore_rows(rows);
        successor += rows.successor_count;
    }
    store->restore_done();
    return store;
}

}  // namespace ringback::twin
