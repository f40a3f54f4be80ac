/* Tune from C, or any language, by lines of JSON: the tuner is a child process.
 *   cc tune_protocol.c -o tune_protocol && ./tune_protocol "python -m tilewright.tuning.protocol"
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static double kernel(int tile, int unroll) { /* what would be compiled and timed */
    return 1.0 + (tile - 32) * (tile - 32) / 64.0 + (unroll - 4) * (unroll - 4);
}

int main(int argc, char **argv) {
    int to[2], from[2], tile, unroll, index;
    char line[4096];
    if (argc < 2 || pipe(to) || pipe(from)) return 2;
    if (fork() == 0) {
        dup2(to[0], 0), dup2(from[1], 1), close(to[1]), close(from[0]);
        execl("/bin/sh", "sh", "-c", argv[1], (char *)NULL);
        _exit(127);
    }
    close(to[0]), close(from[1]);
    FILE *ask = fdopen(to[1], "w"), *answer = fdopen(from[0], "r");
    setvbuf(ask, NULL, _IOLBF, 0);
    fprintf(ask, "{\"seed\": 1, \"space\": {\"parameters\": ["
        "{\"name\": \"tile\", \"type\": \"ordinal\", \"values\": [8, 16, 32, 64], \"scale\": \"log\"},"
        "{\"name\": \"unroll\", \"type\": \"integer\", \"low\": 1, \"high\": 8}],"
        "\"constraints\": [\"tile %% unroll == 0\"]}}\n");
    if (!fgets(line, sizeof line, answer)) return 1;
    for (int i = 0; i < 14; i++) { /* the loop: ask, evaluate, tell */
        fprintf(ask, "{\"ask\": 1}\n");
        if (!fgets(line, sizeof line, answer) || !strstr(line, "\"index\"")) break;
        sscanf(strstr(line, "\"index\": "), "\"index\": %d", &index);
        sscanf(strstr(line, "\"tile\": "), "\"tile\": %d", &tile);
        sscanf(strstr(line, "\"unroll\": "), "\"unroll\": %d", &unroll);
        fprintf(ask, "{\"tell\": {\"index\": %d, \"value\": %g}}\n", index, kernel(tile, unroll));
        if (!fgets(line, sizeof line, answer)) return 1;
    }
    fprintf(ask, "{\"best\": true}\n");
    if (fgets(line, sizeof line, answer)) fputs(line, stdout);
    fclose(ask);
    wait(NULL);
    return 0;
}
