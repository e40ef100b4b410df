/*
after/control.cpp -- control arms of a run: --factors, by which numbers of single tensors are
multiplied, and --noise, what a step tells of the noise of its gradient.
*/
#include "../run/train.h"

// Reads --factors: o_proj:lr=2,..
static void select_factors(Model* m, const Flags& f, bool anywhere) {
    std::vector<std::string> words;
    for (auto& item : split(f.factors, ',')) {
        const std::string given = "--factors " + item;
        auto parts = split(item, ':');
        const std::string after = item.substr(item.find(':') + 1);       // of nothing: nothing
        for (auto& part : split(after, '=')) { parts.push_back(part); }
        Factor factor;
        const bool whole = parts.size() == 4 && is_one_of(" lr start decay eps ", parts[2]) &&
                           parse_double(parts[3], &factor.by) && factor.by >= 0;
        require(whole, given, "WORD:lr=NUMBER, WORD:start=, WORD:decay= or WORD:eps=");
        factor.of = parts[2];
        require(factor.of != "start" || f.init.empty(), given, "a run that begins without --init");
        require(factor.of != "eps" || f.optimizer == OPTIMIZER_adamw, given, "--optimizer adamw");
        require(!float_loses(factor.by) && factor.by <= FLT_MAX, given,
                "0 or a magnitude from 1e-37 to 1e38");
        const std::string once = parts[0] + ":" + parts[2];
        require(anywhere || !has(words, once), "--factors " + f.factors, once + "= once");
        words.push_back(once);
        for (auto& name : names_of_word(m, given, parts[0], anywhere)) {
            factor.name = name;
            m->factors.push_back(factor);
        }
    }
}

// Two numbers whose ratio is the gradient noise scale, in targets (McCandlish et al. 2018): the
// squared norm of the expected gradient, and the variance that one target adds to it, summed over
// the parameters. Each is right on average, not in one step: the ratio is that of means over steps.
struct GradNoise {
    double signal;
    double noise;
};

// Estimates the noise of a step from two squared norms: of what `few` targets, half of its batch,
// add to the mean gradient of `many`, all of it; and of that mean.
static GradNoise grad_noise(double few, double squares_half, double many, double squares) {
    const double share = few / many;
    const double squares_few = squares_half / (share * share);     // of their own mean
    GradNoise g;
    g.signal = (many * squares - few * squares_few) / (many - few);
    g.noise = (squares_few - squares) / (1 / few - 1 / many);
    return g;
}

void control_arms(Run* r, bool anywhere) {
    const Flags& f = r->f;
    const bool alone = dist::world() == 1;
    require(alone || f.factors.empty(), "--factors " + f.factors,
            "one process: it works on whole tensors, and several share them");
    require(alone || !f.noise, "--noise",
            "one process: the gradients of all meet when a step ends, not before");
    select_factors(&r->m, f, anywhere);
    if (!f.noise) { return; }
    require(r->accum % 2 == 0, strf("--noise, and %d batches a step", r->accum),
            strf("an even number of them: --total-batch %.0f", 2.0 * f.batch * f.arch.T));
    const auto half = std::make_shared<double>();
    const auto noise = std::make_shared<GradNoise>();
    r->more.half = [=](const Model* m) {
        StepSums sums;
        ops::square_norm(m->sums, m->grads_memory, 0, m->num_params);
        ops::to_host(&sums, m->sums, sizeof sums);
        *half = sums.squares;
    };
    r->more.done = [=](double few, double many, double squares) {
        *noise = grad_noise(few, *half, many, squares);
    };
    r->more.log = [=](JsonObject* o) {
        o->number("grad_signal", noise->signal);
        o->number("grad_noise", noise->noise);
    };
}
