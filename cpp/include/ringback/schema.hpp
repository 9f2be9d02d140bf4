#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ringback {

enum class DType : std::uint8_t { b1, i8, u8, i16, u16, i32, u32, i64, u64, f16, f32, f64 };

std::size_t size_of(DType dtype) noexcept;

// One leaf of a step: a name such as "observation/camera", its dtype, and the shape of one row.
struct Field {
    std::string name;
    DType dtype = DType::f32;
    std::vector<std::int64_t> shape;
    std::size_t bytes = 0;  // of one row; set by Schema
};

// Which step of which episode a row holds. Kept apart from the record: most reads do not need it.
struct StepTime {
    std::int64_t t;         // index in its episode
    std::uint32_t episode;  // slot in the episode table
};

// What a record holds beside its fields: how its step ended, and where its successor observation is.
struct StepTag {
    std::uint8_t flags;  // kTerminated, kTruncated
    std::uint32_t link;  // 0: the next row of its episode; else side-pool entry + 1, at most kMaxLink

    static constexpr std::uint32_t kMaxLink = (std::uint32_t{1} << 30) - 1;
    static StepTag from(std::uint32_t word) noexcept { return {static_cast<std::uint8_t>(word & 3), word >> 2}; }
    std::uint32_t word() const noexcept { return link << 2 | flags; }
};

// Where a field lies. In the record at `offset`, or, when it is large, in column number `column`.
struct Place {
    std::size_t bytes = 0;
    std::size_t offset = 0;
    std::int32_t column = -1;
    bool in_column() const noexcept { return column >= 0; }
};

// The fields of a step and where each lies in memory.
//
//   record   | observation leaves | tag | action, reward, extras |  pad
//            '-- offset 0          |     '-- by falling alignment
//                                  '-- four bytes
//   columns  one array a large leaf (an image), rows unpadded
//   apart    the step's number (8 bytes) and its StepTime (16 bytes)
//
// Small fields of a step lie together, so that reading a step touches one or two cache lines; the observation comes
// first, so that the successor (the next record's observation) is the bytes that follow. A side-pool entry has the
// layout of the observation part alone, with the same offsets.
//
// Order of fields: observation leaves, action leaves, the reward (float32), extras. Everything addresses them by index.
class Schema {
  public:
    // Fields of at least this many bytes get a column of their own.
    static constexpr std::size_t kColumnBytes = 2048;

    // Throws std::invalid_argument on a negative dimension, a row without bytes, a repeated name or no observation.
    Schema(std::vector<Field> observation, std::vector<Field> action, std::vector<Field> extras);

    std::span<const Field> fields() const noexcept { return fields_; }
    std::span<const Place> places() const noexcept { return places_; }
    const Field& field(std::size_t index) const noexcept { return fields_[index]; }
    const Place& place(std::size_t index) const noexcept { return places_[index]; }

    std::size_t observation_count() const noexcept { return observation_count_; }
    std::size_t action_count() const noexcept { return action_count_; }
    std::size_t reward_index() const noexcept { return observation_count_ + action_count_; }
    std::size_t extras_begin() const noexcept { return reward_index() + 1; }

    std::size_t record_bytes() const noexcept { return record_bytes_; }            // stride of a record
    std::size_t observation_bytes() const noexcept { return observation_bytes_; }  // its first part; stride of an entry
    std::size_t tag_offset() const noexcept { return observation_bytes_; }
    std::span<const std::size_t> columns() const noexcept { return columns_; }         // bytes a row of each column
    std::size_t observation_columns() const noexcept { return observation_columns_; }  // these come first

    std::size_t row_bytes() const noexcept;    // all of one step
    std::size_t entry_bytes() const noexcept;  // one observation in the side pool

  private:
    std::vector<Field> fields_;
    std::vector<Place> places_;
    std::vector<std::size_t> columns_;
    std::size_t observation_count_ = 0, action_count_ = 0, observation_columns_ = 0;
    std::size_t observation_bytes_ = 0, record_bytes_ = 0;
};

}  // namespace ringback
