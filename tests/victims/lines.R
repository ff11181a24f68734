# Random numbers, linear algebra, a model fitted again and again; each step depends on all before it.
arguments <- commandArgs(trailingOnly = TRUE)
steps <- if (length(arguments) > 0) as.integer(arguments[1]) else 60L
# As in victim.h: where a test wants the program to wait, and for which file.
waits_at <- as.integer(Sys.getenv("CKPT_VICTIM_WAITS_AT", "0"))
waits_for <- Sys.getenv("CKPT_VICTIM_WAITS_FOR", "/")

set.seed(4711)
state <- matrix(rnorm(60 * 60), 60)
kept <- list()
file <- file("lines", "w")
cat("ready\n")
for (step in seq_len(steps)) {
  noise <- matrix(rnorm(60 * 60), 60)
  state <- qr.Q(qr(state %*% noise + diag(60)))
  data <- data.frame(y = state[, 1], a = state[, 2], b = noise[, 1], group = factor(sample(letters[1:3], 60, TRUE)))
  fitted <- lm(y ~ a * b + group, data)
  kept[[paste0("k", step %% 11)]] <- coef(fitted)
  sum <- sum(sapply(kept, function(row) sum(row * seq_along(row))))
  cat(sprintf("step %d %a %a %s\n", step, sum, state[step %% 60 + 1, 7], paste(sample(1000, 3), collapse = " ")))
  writeLines(sprintf("%d %a", step, summary(fitted)$r.squared), file)
  flush(file)
  while (step == waits_at && !file.exists(waits_for)) Sys.sleep(0.001)
  Sys.sleep(0.01)
}
close(file)
cat("verified\n")
quit(status = 3)
