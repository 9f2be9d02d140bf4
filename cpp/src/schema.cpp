#include "ringback/schema.hpp"

#include <algorithm>
#include <stdexcept>
#include <unordered_set>

namespace ringback {

std::size_t size_of(DType dtype) noexcept {
    switch (dtype) {
        case DType::b1:
        case DType::i8:
        case DType::u8:
            return 1;
        case DType::i16:
        case DType::u16:
        case DType::f16:
            return 2;
        case DType::i32:
        case DType::u32:
        case DType::f32:
            return 4;
        case DType::i64:
        case DType::u64:
        case DType::f64:
            return 8;
    }
    return 0;
}

namespace {

// A record that nearly fills its cache lines is padded to whole ones: a row then never straddles one line more.
constexpr std::size_t kLine = 64;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::size_t record_stride(std::size_t bytes) {
    const std::size_t lines = round_up(bytes, kLine);
    return (lines - bytes) * 8 <= bytes ? lines : round_up(bytes, 8);
}

std::size_t bytes_of(const Field& field) {
    std::size_t bytes = size_of(field.dtype);
    for (const std::int64_t n : field.shape) {
        if (n < 1)
            throw std::invalid_argument("every dimension of " + field.name + " must be >= 1, got " + std::to_string(n));
        if (static_cast<std::uint64_t>(n) > (std::size_t{1} << 40) / bytes)
            throw std::invalid_argument("a row of " + field.name + " must be at most 1 TiB");
        bytes *= static_cast<std::size_t>(n);
    }
    return bytes;
}

}  // namespace

Schema::Schema(std::vector<Field> observation, std::vector<Field> action, std::vector<Field> extras)
    : observation_count_(observation.size()), action_count_(action.size()) {
    if (observation.empty()) throw std::invalid_argument("the observation must have at least one leaf, got none");
    for (auto* group : {&observation, &action}) fields_.insert(fields_.end(), group->begin(), group->end());
    fields_.push_back({"reward", DType::f32, {}, 0});
    fields_.insert(fields_.end(), extras.begin(), extras.end());

    std::unordered_set<std::string> names;
    places_.resize(fields_.size());
    for (std::size_t i = 0; i < fields_.size(); ++i) {
        if (!names.insert(fields_[i].name).second)
            throw std::invalid_argument("field names must differ, got " + fields_[i].name + " twice");
        fields_[i].bytes = places_[i].bytes = bytes_of(fields_[i]);
        if (fields_[i].bytes >= kColumnBytes) {
            places_[i].column = static_cast<std::int32_t>(columns_.size());
            columns_.push_back(fields_[i].bytes);
        }
        if (i + 1 == observation_count_) observation_columns_ = columns_.size();
    }

    // Small fields of [begin, end), widest elements first.
    std::size_t offset = 0;
    const auto lay_out = [&](std::size_t begin, std::size_t end) {
        std::vector<std::size_t> order;
        for (std::size_t i = begin; i < end; ++i)
            if (!places_[i].in_column()) order.push_back(i);
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return size_of(fields_[a].dtype) > size_of(fields_[b].dtype);
        });
        for (const std::size_t i : order) {
            places_[i].offset = offset;
            offset += places_[i].bytes;
        }
    };
    lay_out(0, observation_count_);
    observation_bytes_ = offset;
    offset += sizeof(std::uint32_t);
    lay_out(observation_count_, fields_.size());
    record_bytes_ = record_stride(offset);
}

std::size_t Schema::row_bytes() const noexcept {
    std::size_t bytes = record_bytes_ + sizeof(std::int64_t) + sizeof(StepTime);
    for (const std::size_t column : columns_) bytes += column;
    return bytes;
}

std::size_t Schema::entry_bytes() const noexcept {
    std::size_t bytes = observation_bytes_;
    for (std::size_t c = 0; c < observation_columns_; ++c) bytes += columns_[c];
    return bytes;
}

}  // namespace ringback
