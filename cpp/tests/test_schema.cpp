#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "ringback/schema.hpp"
#include "ringback/step_store.hpp"
#include "steps.hpp"

using namespace ringback;
using twin::field;

namespace {

// Which byte of a record belongs to whom; a byte that two claim is an error, as is one beyond the record.
std::vector<int> claims(const Schema& schema) {
    std::vector<int> owner(schema.record_bytes(), -1);
    const auto claim = [&](std::size_t offset, std::size_t bytes, int who) {
        for (std::size_t b = offset; b < offset + bytes; ++b) {
            REQUIRE(b < owner.size());
            REQUIRE(owner[b] == -1);
            owner[b] = who;
        }
    };
    claim(schema.tag_offset(), sizeof(std::uint32_t), 1000);
    for (std::size_t f = 0; f < schema.fields().size(); ++f)
        if (!schema.place(f).in_column()) claim(schema.place(f).offset, schema.place(f).bytes, static_cast<int>(f));
    return owner;
}

std::string refusal(std::vector<Field> observation, std::vector<Field> action = {}, std::vector<Field> extras = {}) {
    try {
        const Schema schema(std::move(observation), std::move(action), std::move(extras));
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("no two fields of a record share a byte, nor with the tag") {
    for (const Schema& schema : twin::schemas()) claims(schema);
}

TEST_CASE("a seven-leaf schema of every width is laid out without overlap, its widest fields first") {
    const Schema schema({field("a", DType::b1, {3}), field("b", DType::f64), field("c", DType::i16, {5})},
                        {field("d", DType::u8), field("e", DType::i64), field("f", DType::f16, {3})},
                        {field("g", DType::u32)});
    claims(schema);
    CHECK(schema.place(1).offset < schema.place(2).offset);
    CHECK(schema.place(2).offset < schema.place(0).offset);
    CHECK(schema.place(4).offset < schema.place(6).offset);
    CHECK(schema.place(5).offset < schema.place(3).offset);
}

TEST_CASE("the observation lies at the front of the record, where a side-pool entry has it too") {
    for (const Schema& schema : twin::schemas())
        for (std::size_t f = 0; f < schema.fields().size(); ++f) {
            if (schema.place(f).in_column()) continue;
            if (f < schema.observation_count())
                CHECK(schema.place(f).offset + schema.place(f).bytes <= schema.observation_bytes());
            else
                CHECK(schema.place(f).offset >= schema.tag_offset() + sizeof(std::uint32_t));
        }
}

TEST_CASE("a field of 2048 bytes has a column, one of 2047 lies in the record") {
    const Schema schema({field("observation/small", DType::u8, {2047}), field("observation/large", DType::u8, {2048})},
                        {}, {});
    CHECK_FALSE(schema.place(0).in_column());
    CHECK(schema.place(1).in_column());
    CHECK(schema.columns().size() == 1);
    CHECK(schema.columns()[0] == 2048);
}

TEST_CASE("columns of the observation come first, and rows of a column are not padded") {
    const Schema schema = twin::columns_everywhere();
    CHECK(schema.observation_columns() == 2);
    CHECK(schema.columns().size() == 3);
    CHECK(schema.columns()[0] == 2049);
    CHECK(schema.columns()[1] == 2048);
    CHECK(schema.columns()[2] == 2052);
    CHECK(schema.row_bytes() == schema.record_bytes() + 24 + 2049 + 2048 + 2052);
    CHECK(schema.entry_bytes() == 2049 + 2048);
}

TEST_CASE("fields keep the order in which they were given, with the float32 reward after the actions") {
    const Schema schema = twin::camera_and_state();
    CHECK(schema.reward_index() == 4);
    CHECK(schema.extras_begin() == 5);
    CHECK(schema.field(schema.reward_index()).name == "reward");
    CHECK(schema.field(schema.reward_index()).dtype == DType::f32);
    CHECK(schema.field(schema.reward_index()).bytes == 4);
    CHECK(schema.field(0).name == "observation/state");
    CHECK(schema.field(6).name == "mask");
    CHECK(schema.field(1).bytes == 2100);
}

TEST_CASE("a step of 17+6 floats takes less than two cache lines, so that with its successor it spans four at most") {
    const Schema schema({field("observation", DType::f32, {17})}, {field("action", DType::f32, {6})}, {});
    CHECK(schema.record_bytes() == 104);
}

TEST_CASE("frames cost no more than their bytes and one small record") {
    const Schema schema({field("observation", DType::u8, {84, 84})}, {field("action", DType::i64)}, {});
    CHECK(schema.row_bytes() <= 7056 * 102 / 100);
}

TEST_CASE("a schema without an observation leaf, with a repeated name or an empty dimension is refused") {
    CHECK(refusal({}) == "the observation must have at least one leaf, got none");
    CHECK(refusal({field("x", DType::f32)}, {field("x", DType::f32)}) == "field names must differ, got x twice");
    CHECK(refusal({field("x", DType::f32)}, {}, {field("reward", DType::f32)}) ==
          "field names must differ, got reward twice");
    CHECK(refusal({field("x", DType::f32, {3, 0})}) == "every dimension of x must be >= 1, got 0");
    CHECK(refusal({field("x", DType::f32, {-1})}) == "every dimension of x must be >= 1, got -1");
}

TEST_CASE("a row whose size would overflow is refused") {
    CHECK(refusal({field("x", DType::f64, {std::int64_t{1} << 62})}) == "a row of x must be at most 1 TiB");
    CHECK(refusal({field("x", DType::f32, {1 << 20, 1 << 20, 1 << 20, 1 << 20})}) ==
          "a row of x must be at most 1 TiB");
}
