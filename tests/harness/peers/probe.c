/* A service that is asked something at a steady pace and needs a fixed time on a CPU to answer: open-loop, so that a
 * late answer delays nobody's asking. Each line that it prints is one answer: when it was asked for, in microseconds
 * since 1970, and how long it took. Arguments: threads, microseconds between two questions, microseconds of CPU. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long gap, work;

static long micros(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

static void *serve(void *number) {
  long next = micros(CLOCK_REALTIME) + gap * (1 + (long)number) / 2;
  for (;; next += gap) {
    struct timespec until = {next / 1000000, next % 1000000 * 1000};
    clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, NULL);
    long start = micros(CLOCK_THREAD_CPUTIME_ID);
    while (micros(CLOCK_THREAD_CPUTIME_ID) - start < work) {
    }
    printf("%ld %ld\n", next, micros(CLOCK_REALTIME) - next);
  }
  return NULL;
}

int main(int count, char **words) {
  if (count != 4) return 2;
  gap = atol(words[2]);
  work = atol(words[3]);
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (long number = atol(words[1]) - 1; number >= 0; number--) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, serve, (void *)number)) return 1;
    if (number == 0) pthread_join(thread, NULL);
  }
}
