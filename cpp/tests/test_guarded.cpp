#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/wait.h>
#include <unistd.h>
#define RB_HAS_FORK
#endif

#include "guarded.hpp"
#include "ringback/gather.hpp"
#include "ringback/sampler.hpp"
#include "steps.hpp"

using namespace ringback;
using bindings::Guarded;

// No test here waits for a clock. A lock that starves somebody, or that is waited for with the interpreter's lock held,
// shows as a test that never ends.
namespace {

// No interpreter at all.
struct Alone {
    struct Released {
        Released() {}
    };
};

// An interpreter's lock that is a real mutex, one a program; each thread knows whether it holds it.
struct Interpreter {
    static inline std::mutex lock;
    static inline thread_local bool held = false;
    static inline std::atomic<int> releases{0};

    struct Released {
        Released() {
            held = false;
            releases.fetch_add(1);
            lock.unlock();
        }
        ~Released() {
            lock.lock();
            held = true;
        }
    };

    // What a thread of the interpreter does around every piece of its work.
    struct Held {
        Held() {
            lock.lock();
            held = true;
        }
        ~Held() {
            held = false;
            lock.unlock();
        }
    };
};

constexpr std::size_t kSmall = 64;
constexpr std::size_t kLarge = std::size_t{1} << 20;  // the first size that counts as large

// A row that is torn if its words differ.
struct Row {
    std::array<std::uint64_t, 64> words{};

    void fill(std::uint64_t value) { words.fill(value); }
    bool is_whole() const {
        for (const std::uint64_t word : words)
            if (word != words[0]) return false;
        return true;
    }
};

// Runs them side by side and waits for all.
void together(std::vector<std::function<void()>> jobs) {
    std::vector<std::thread> threads;
    for (auto& job : jobs) threads.emplace_back(std::move(job));
    for (auto& thread : threads) thread.join();
}

// `reads` whole reads a reader beside `writes` writes; sizes alternate between small and large.
template <class Lock>
void readers_beside_a_writer(int writes, int reads, int readers) {
    Guarded<Row, Lock> row;
    std::atomic<int> torn{0}, backwards{0};
    std::vector<std::function<void()>> jobs{[&] {
        for (int i = 1; i <= writes; ++i) {
            if constexpr (std::is_same_v<Lock, Interpreter>) {
                const Interpreter::Held held;
                row.write(i % 2 != 0 ? kSmall : kLarge, [&](Row& r) { r.fill(static_cast<std::uint64_t>(i)); });
            } else {
                row.write(i % 2 != 0 ? kSmall : kLarge, [&](Row& r) { r.fill(static_cast<std::uint64_t>(i)); });
            }
        }
    }};
    for (int reader = 0; reader < readers; ++reader)
        jobs.emplace_back([&, reader] {
            std::uint64_t newest = 0;
            for (int i = 0; i < reads; ++i) {
                const std::size_t moved = (i + reader) % 3 != 0 ? kSmall : kLarge;
                const auto look = [&](const Row& r) { return std::pair(r.is_whole(), r.words[0]); };
                std::pair<bool, std::uint64_t> seen;
                if constexpr (std::is_same_v<Lock, Interpreter>) {
                    const Interpreter::Held held;
                    seen = row.read(moved, look);
                } else {
                    seen = row.read(moved, look);
                }
                if (!seen.first) ++torn;
                if (seen.second < newest) ++backwards;
                newest = seen.second;
            }
        });
    together(std::move(jobs));
    CHECK(torn == 0);
    CHECK(backwards == 0);
    CHECK(row.read(kSmall, [](const Row& r) { return r.words[0]; }) == static_cast<std::uint64_t>(writes));
}

}  // namespace

TEST_CASE("a call gives what its function gives, by value") {
    Guarded<std::vector<int>, Alone> numbers(std::size_t{3}, 7);
    CHECK(numbers.read(kSmall, [](const std::vector<int>& v) { return v.size(); }) == 3);
    CHECK(numbers.write(kLarge, [](std::vector<int>& v) -> int& { return v[0] = 8; }) == 8);
    CHECK(numbers.read(kLarge, [](const std::vector<int>& v) -> const std::vector<int>& { return v; }) ==
          std::vector<int>{8, 7, 7});
}

TEST_CASE("a read gets a const value, so that it cannot write") {
    Guarded<int, Alone> number(1);
    number.read(kSmall, [](auto& value) { static_assert(std::is_const_v<std::remove_reference_t<decltype(value)>>); });
    number.write(kSmall,
                 [](auto& value) { static_assert(!std::is_const_v<std::remove_reference_t<decltype(value)>>); });
}

TEST_CASE("one writer and several readers never see a torn row, nor an older one after a newer") {
    readers_beside_a_writer<Alone>(4000, 4000, 3);
}

TEST_CASE("the same with an interpreter's lock that all of them want") {
    readers_beside_a_writer<Interpreter>(1500, 1500, 3);
}

TEST_CASE("readers that never stop do not keep a writer out") {
    for (const std::size_t moved : {kSmall, kLarge}) {
        Guarded<Row, Alone> row;
        std::atomic<bool> done{false};
        const auto read_on = [&] {
            while (!done) row.read(moved, [](const Row& r) { return r.is_whole(); });
        };
        together({read_on, read_on, read_on, [&] {
                      for (std::uint64_t i = 1; i <= 300; ++i) row.write(moved, [&](Row& r) { r.fill(i); });
                      done = true;
                  }});
        CHECK(row.read(kSmall, [](const Row& r) { return r.words[0]; }) == 300);
    }
}

TEST_CASE("a writer that never stops does not keep readers out") {
    for (const std::size_t moved : {kSmall, kLarge}) {
        Guarded<Row, Alone> row;
        std::atomic<int> reading{2};
        std::atomic<int> torn{0};
        const auto read = [&] {
            for (int i = 0; i < 300; ++i)
                if (!row.read(moved, [](const Row& r) { return r.is_whole(); })) ++torn;
            --reading;
        };
        together({read, read, [&] {
                      for (std::uint64_t i = 1; reading > 0; ++i) row.write(moved, [&](Row& r) { r.fill(i); });
                  }});
        CHECK(torn == 0);
    }
}

TEST_CASE("several readers are inside at once") {
    Guarded<int, Alone> number(1);
    std::atomic<int> inside{0};
    const auto meet = [&] {
        number.read(kLarge, [&](const int&) {
            ++inside;
            while (inside < 2) std::this_thread::yield();  // ends only if the other one comes in too
        });
    };
    together({meet, meet});
    CHECK(inside == 2);
}

TEST_CASE("a small call that finds the lock free keeps the interpreter's lock, a large one gives it up") {
    Guarded<int, Interpreter> number(1);
    const Interpreter::Held held;
    const int before = Interpreter::releases;
    CHECK(number.read(kLarge - 1, [](const int&) { return Interpreter::held; }));
    CHECK(number.write(kLarge - 1, [](int&) { return Interpreter::held; }));
    CHECK(Interpreter::releases == before);
    CHECK_FALSE(number.read(kLarge, [](const int&) { return Interpreter::held; }));
    CHECK_FALSE(number.write(kLarge, [](int&) { return Interpreter::held; }));
    CHECK(Interpreter::releases == before + 2);
    CHECK(Interpreter::held);
}

TEST_CASE("nobody waits for our lock while holding the interpreter's") {
    // Somebody is inside for long without the interpreter's lock. Small calls of each kind wait for it to leave; it
    // leaves only after this thread got the interpreter's lock, which it could not if one of the waiting threads kept
    // it.
    for (const bool writer_inside : {true, false}) {
        Guarded<int, Interpreter> number(1);
        std::atomic<bool> inside{false}, leave{false};
        std::atomic<int> asked{0}, held_inside{0};
        const auto stay = [&](const auto&) {
            inside = true;
            while (!leave) std::this_thread::yield();
        };
        const auto small_call = [&](bool writes) {
            while (!inside) std::this_thread::yield();
            const Interpreter::Held held;
            ++asked;
            const auto look = [&](auto&) { held_inside += Interpreter::held ? 1 : 0; };
            if (writes)
                number.write(kSmall, look);
            else
                number.read(kSmall, look);
        };
        together({[&] {
                      const Interpreter::Held held;
                      if (writer_inside)
                          number.write(kLarge, stay);
                      else
                          number.read(kLarge, stay);
                  },
                  [&] { small_call(true); }, [&] { small_call(false); }, [&] { small_call(true); },
                  [&] {
                      while (asked < 3) std::this_thread::yield();  // each has got the interpreter's lock once …
                      for (int turn = 0; turn < 100; ++turn)
                          const Interpreter::Held held;  // … and we get it again and again
                      leave = true;
                  }});
        CHECK(asked == 3);
        CHECK(held_inside <= 3);
    }
}

TEST_CASE("an exception leaves both locks as they were") {
    Guarded<int, Interpreter> number(1);
    const Interpreter::Held held;
    for (const std::size_t moved : {kSmall, kLarge}) {
        CHECK_THROWS_WITH_AS(number.write(moved, [](int&) -> int { throw std::invalid_argument("no"); }), "no",
                             std::invalid_argument);
        CHECK_THROWS_WITH_AS(number.read(moved, [](const int&) -> int { throw std::out_of_range("nor this"); }),
                             "nor this", std::out_of_range);
        CHECK(Interpreter::held);
        CHECK(number.write(moved, [](int& value) { return ++value; }) > 1);
    }
}

TEST_CASE("a store that is written and read at once gives rows of one step only, through wraps and ends") {
    const Schema schema(
        {twin::field("observation/state", DType::f32, {5}), twin::field("observation/camera", DType::u8, {2100})},
        {twin::field("action", DType::i64)}, {});
    constexpr std::uint64_t kSteps = 1500;
    Guarded<StepStore, Alone> guarded(schema, 200, Mismatch::keep);
    std::vector<twin::Given> steps;
    for (std::uint64_t n = 0; n < kSteps; ++n) {
        steps.push_back(twin::counting_step(schema, n));
        steps.back().terminated = n % 37 == 36;
    }
    std::atomic<bool> done{false};
    std::atomic<int> wrong{0}, batches{0};
    const auto write = [&] {
        for (std::uint64_t n = 0; n < kSteps; ++n) {
            const twin::Columns columns(schema, {steps[n]});
            const StreamKey key = static_cast<std::int64_t>(n / 37 % 3);
            guarded.write(n % 2 != 0 ? kSmall : kLarge, [&](StepStore& store) {
                std::int64_t id = -1;
                store.write(columns.rows(), {&key, 1}, {&id, 1});
                if (n == 60) store.prepare_windows({5});
            });
        }
        done = true;
    };
    const auto read = [&](std::uint64_t seed) {
        constexpr std::size_t kBatch = 16;
        Rng rng(seed);
        Sampler sampler;
        Gather gather;
        std::vector<std::int64_t> offsets(kBatch), ids(kBatch);
        std::vector<std::uint32_t> rows(kBatch);
        std::vector<std::byte> state(kBatch * 20), camera(kBatch * 2100), action(kBatch * 8), next_state(kBatch * 20),
            next_camera(kBatch * 2100);
        std::vector<float> reward(kBatch), dones(kBatch);
        std::vector<std::uint8_t> terminated(kBatch), truncated(kBatch);
        TransitionOut out;
        out.observation = {{0, state.data()}, {1, camera.data()}};
        out.fields = {{2, action.data()}};
        out.next_observation = {{0, next_state.data()}, {1, next_camera.data()}};
        out.reward = reward.data();
        out.done = dones.data();
        out.terminated = terminated.data();
        out.truncated = truncated.data();
        for (int i = 0; !done || i < 20; ++i) {
            const bool any = guarded.read(i % 2 != 0 ? kSmall : kLarge, [&](const StepStore& store) {
                if (store.live() == 0) return false;
                sampler.draw_steps(rng, store, true, offsets);
                for (std::size_t k = 0; k < kBatch; ++k) {
                    rows[k] = store.row_at_offset(offsets[k]);
                    ids[k] = store.number(rows[k]);
                }
                gather.transitions(store, rows, {}, out);
                if (const WindowIndex* const index = store.window_index({5});
                    index != nullptr && index->starts.total() > 0) {
                    WindowStart start{};
                    sampler.draw_windows(rng, store, *index, true, {&start, 1});
                    if (store.episode(start.slot).end - start.t < 5) ++wrong;
                }
                return true;
            });
            if (!any) continue;
            ++batches;
            for (std::size_t k = 0; k < kBatch; ++k) {
                const twin::Given& want = steps[static_cast<std::size_t>(ids[k])];
                const auto differs = [&](const std::vector<std::byte>& got, const std::string& bytes) {
                    return std::memcmp(got.data() + k * bytes.size(), bytes.data(), bytes.size()) != 0;
                };
                if (differs(state, want.fields[0]) || differs(camera, want.fields[1]) ||
                    differs(action, want.fields[2]) || differs(next_state, want.successor[0]) ||
                    differs(next_camera, want.successor[1]) || reward[k] != static_cast<float>(ids[k]) ||
                    terminated[k] != (want.terminated ? 1 : 0))
                    ++wrong;
            }
        }
    };
    together({write, [&] { read(1); }, [&] { read(2); }});
    CHECK(wrong == 0);
    CHECK(batches >= 20);
}

#ifdef RB_HAS_FORK
namespace {

// What a child process says: the status that `job` gives.
int in_a_child(const std::function<int()>& job) {
    const pid_t child = fork();
    if (child == 0) _exit(job());
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int refused(const std::function<void()>& call) {
    try {
        call();
    } catch (const std::runtime_error& error) {
        return std::strcmp(error.what(),
                           "a buffer must be used by the process that made it, got a call in a forked child") == 0;
    }
    return 0;
}

}  // namespace

TEST_CASE("every use in a forked child is refused, also in a child's child, and the parent goes on") {
    Guarded<int, Alone> number(1);
    CHECK(in_a_child([&] { return refused([&] { number.read(kSmall, [](const int& n) { return n; }); }); }) == 1);
    CHECK(in_a_child([&] { return refused([&] { number.write(kLarge, [](int& n) { return ++n; }); }); }) == 1);
    CHECK(in_a_child([&] {
              return in_a_child([&] { return refused([&] { number.read(kLarge, [](const int& n) { return n; }); }); });
          }) == 1);
    CHECK(number.write(kSmall, [](int& n) { return ++n; }) == 2);
}

TEST_CASE("a child can use what it makes itself, also while the parent's locks are taken") {
    Guarded<int, Alone> number(1);
    number.write(kSmall, [&](int&) {
        CHECK(in_a_child([&] {
                  Guarded<int, Alone> own(41);
                  return own.write(kSmall, [](int& n) { return ++n; });
              }) == 42);
        CHECK(in_a_child([&] { return refused([&] { number.read(kSmall, [](const int& n) { return n; }); }); }) == 1);
    });
}
#endif
