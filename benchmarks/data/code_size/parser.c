/* A tokeniser and a calculator of arithmetic expressions with variables. */
#include <stddef.h>

enum kind { END, NUMBER, NAME, PLUS, MINUS, TIMES, OVER, POWER, OPEN, CLOSE, ASSIGN, COMMA, WRONG };

struct token {
    enum kind kind;
    double value;
    unsigned name;
};

struct state {
    const char *text;
    struct token now;
    double variables[64];
    int errors, depth;
};

static int is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
static int is_digit(char c) { return c >= '0' && c <= '9'; }
static int is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static void number(struct state *s)
{
    double value = 0, scale = 1;
    while (is_digit(*s->text)) value = 10 * value + (*s->text++ - '0');
    if (*s->text == '.')
        for (s->text++; is_digit(*s->text); s->text++) value += (scale /= 10) * (*s->text - '0');
    s->now.kind = NUMBER;
    s->now.value = value;
}

void next(struct state *s)
{
    while (is_space(*s->text)) s->text++;
    if (is_digit(*s->text)) {
        number(s);
        return;
    }
    if (is_letter(*s->text)) {
        unsigned hash = 5381;
        for (; is_letter(*s->text) || is_digit(*s->text); s->text++)
            hash = 33 * hash ^ (unsigned char)*s->text;
        s->now.kind = NAME;
        s->now.name = hash % 64;
        return;
    }
    switch (*s->text) {
    case 0: s->now.kind = END; return;
    case '+': s->now.kind = PLUS; break;
    case '-': s->now.kind = MINUS; break;
    case '*': s->now.kind = s->text[1] == '*' ? (s->text++, POWER) : TIMES; break;
    case '/': s->now.kind = OVER; break;
    case '^': s->now.kind = POWER; break;
    case '(': s->now.kind = OPEN; break;
    case ')': s->now.kind = CLOSE; break;
    case '=': s->now.kind = ASSIGN; break;
    case ',': s->now.kind = COMMA; break;
    default: s->now.kind = WRONG; s->errors++; break;
    }
    s->text++;
}

double sum(struct state *s);

static double atom(struct state *s)
{
    double value = 0;
    switch (s->now.kind) {
    case NUMBER: value = s->now.value; next(s); return value;
    case NAME: value = s->variables[s->now.name]; next(s); return value;
    case MINUS: next(s); return -atom(s);
    case PLUS: next(s); return atom(s);
    case OPEN:
        if (++s->depth > 100) { s->errors++; return 0; }
        next(s);
        value = sum(s);
        if (s->now.kind == CLOSE) next(s); else s->errors++;
        s->depth--;
        return value;
    default: s->errors++; return 0;
    }
}

static double power(struct state *s)
{
    double base = atom(s), value = 1;
    if (s->now.kind != POWER) return base;
    next(s);
    int n = (int)power(s), away = n < 0;
    for (n = away ? -n : n; n; n >>= 1, base *= base) if (n & 1) value *= base;
    return away ? 1 / value : value;
}

static double product(struct state *s)
{
    double value = power(s);
    for (;;) switch (s->now.kind) {
        case TIMES: next(s); value *= power(s); break;
        case OVER: next(s); value /= power(s); break;
        default: return value;
        }
}

double sum(struct state *s)
{
    double value = product(s);
    for (;;) switch (s->now.kind) {
        case PLUS: next(s); value += product(s); break;
        case MINUS: next(s); value -= product(s); break;
        default: return value;
        }
}
