% Random numbers, factorisations, an FFT, cells and strings; each step depends on all before it.
1;
words = argv();
steps = str2double(words{end});
% As in victim.h: where a test wants the program to wait, and for which file.
waits_at = str2double(getenv("CKPT_VICTIM_WAITS_AT"));
waits_for = getenv("CKPT_VICTIM_WAITS_FOR");
rand("twister", 4711);
randn("twister", 4712);
state = randn(60);
kept = cell(1, 11);
file = fopen("lines", "w");
printf("ready\n");
fflush(stdout);
for step = 1:steps
  [q, r] = qr(state * randn(60) + eye(60));
  state = q;
  spectrum = abs(fft(q(:, 1)));
  kept{mod(step, 11) + 1} = sprintf("%d:%s", step, num2hex(spectrum(2)));
  text = strjoin(kept(! cellfun(@isempty, kept)), ",");
  printf("step %d %s %s %s\n", step, num2hex(sum(diag(r))), num2hex(rand()), hash("md5", text));
  fflush(stdout);
  fprintf(file, "%d %s\n", step, num2hex(norm(inv(r + eye(60)))));
  fflush(file);
  while step == waits_at && ! exist(waits_for, "file")
    pause(0.001);
  end
  pause(0.01);
end
fclose(file);
printf("verified\n");
