#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "ringback/streams.hpp"

using namespace ringback;

namespace {

StreamKey number(std::int64_t n) { return n; }
StreamKey name(const char* text) { return std::string(text); }

std::vector<std::string> dormant(const StreamTable& table) {
    std::vector<std::string> keys;
    for (const auto* node : table.dormant()) keys.push_back(to_string(node->first));
    return keys;
}

}  // namespace

TEST_CASE("a stream is found by its key and by nothing else") {
    StreamTable table(4);
    CHECK(table.find(number(3)) == nullptr);
    StreamTable::Node* const three = table.open(number(3), 17);
    StreamTable::Node* const named = table.open(name("3"), 18);
    CHECK(table.find(number(3)) == three);
    CHECK(table.find(name("3")) == named);
    CHECK(table.find(number(-3)) == nullptr);
    CHECK(three->second.state == StreamTable::State::open);
    CHECK(three->second.episode == 17);
    CHECK(table.size() == 2);
}

TEST_CASE("every int64 is a stream") {
    StreamTable table(4);
    std::uint32_t episode = 0;
    for (const std::int64_t n : {std::numeric_limits<std::int64_t>::min(), std::int64_t{-1}, std::int64_t{0},
                                 std::numeric_limits<std::int64_t>::max()})
        table.open(number(n), episode++);
    CHECK(table.size() == 4);
    CHECK(table.find(number(std::numeric_limits<std::int64_t>::min()))->second.episode == 0);
    CHECK(table.find(number(std::numeric_limits<std::int64_t>::max()))->second.episode == 3);
}

TEST_CASE("an ended numbered stream is forgotten, a named one is remembered as finished until it is forgotten") {
    StreamTable table(4);
    CHECK_FALSE(table.finish(table.open(number(1), 0)));
    CHECK(table.find(number(1)) == nullptr);
    StreamTable::Node* const named = table.open(name("episode"), 1);
    CHECK(table.finish(named));
    CHECK(table.find(name("episode")) == named);
    CHECK(named->second.state == StreamTable::State::finished);
    CHECK(named->second.episode == 1);
    table.forget(named);
    CHECK(table.find(name("episode")) == nullptr);
    CHECK(table.size() == 0);
}

TEST_CASE("a dormant stream keeps the index of its next step alone, and wakes with a new episode") {
    StreamTable table(4);
    StreamTable::Node* const node = table.open(number(1), 5);
    table.sleep(node, 42, 6);
    CHECK(node->second.state == StreamTable::State::dormant);
    CHECK(node->second.next_t == 42);
    CHECK(node->second.unit == 6);
    CHECK(node->second.episode == kNoEpisode);
    CHECK(dormant(table) == std::vector<std::string>{"1"});
    table.wake(node, 6);
    CHECK(node->second.state == StreamTable::State::open);
    CHECK(node->second.episode == 6);
    CHECK(table.dormant().empty());
}

TEST_CASE("of more dormant streams than the capacity the one asleep for longest is forgotten first") {
    StreamTable table(2);
    StreamTable::Node* const a = table.open(number(1), 0);
    StreamTable::Node* const b = table.open(name("b"), 1);
    StreamTable::Node* const c = table.open(number(3), 2);
    table.open(number(4), 3);
    table.sleep(b, 1, 0);
    table.sleep(a, 1, 0);
    table.sleep(c, 1, 0);
    CHECK(dormant(table) == std::vector<std::string>{"'b'", "1", "3"});
    table.forget_surplus();
    CHECK(dormant(table) == std::vector<std::string>{"1", "3"});
    CHECK(table.find(name("b")) == nullptr);
    CHECK(table.find(number(4)) != nullptr);
    table.wake(a, 4);
    table.sleep(a, 2, 0);
    CHECK(dormant(table) == std::vector<std::string>{"3", "1"});
}

TEST_CASE("a dormant stream that is forgotten leaves the order of the others") {
    StreamTable table(8);
    std::vector<StreamTable::Node*> nodes;
    for (std::int64_t n = 0; n < 5; ++n) nodes.push_back(table.open(number(n), static_cast<std::uint32_t>(n)));
    for (StreamTable::Node* node : nodes) table.sleep(node, 1, 0);
    table.forget(nodes[2]);
    CHECK(dormant(table) == std::vector<std::string>{"0", "1", "3", "4"});
}

TEST_CASE("a node keeps its address while thousands come and go") {
    StreamTable table(4);
    StreamTable::Node* const first = table.open(name("stays"), 9);
    for (std::int64_t n = 0; n < 5000; ++n) table.open(number(n), static_cast<std::uint32_t>(n));
    for (std::int64_t n = 0; n < 5000; n += 2) table.finish(table.find(number(n)));
    CHECK(table.find(name("stays")) == first);
    CHECK(first->second.episode == 9);
    CHECK(table.size() == 2501);
}

TEST_CASE("a key is spelled as a number or as a quoted name") {
    CHECK(to_string(number(-7)) == "-7");
    CHECK(to_string(name("e7")) == "'e7'");
}
