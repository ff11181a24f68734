// The objects of one type that exist. A handle is the object's address, and is looked up here before it is believed.
#pragma once

#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace test_double {

template <typename Object> class Live {
  public:
    template <typename... Parts> static Object *create(Parts &&...parts) {
        auto *object = new Object{std::forward<Parts>(parts)...};
        all().insert(object);
        return object;
    }
    static bool has(Object *object) { return all().count(object) != 0; }
    static void destroy(Object *object) {
        all().erase(object);
        delete object;
    }
    // Those that are so. A copy, so that they may be destroyed while one walks over them.
    template <typename Predicate> static std::vector<Object *> those(Predicate is_so) {
        std::vector<Object *> found;
        for (Object *object : all())
            if (is_so(*object)) found.push_back(object);
        return found;
    }

  private:
    static std::set<Object *> &all() {
        static auto *all = new std::set<Object *>; // for as long as the process lives
        return *all;
    }
};

} // namespace test_double
