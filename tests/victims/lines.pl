# Closures, hashes, regular expressions, a heap of strings and a coroutine-like chain; each step depends on all before it.
use strict;
use warnings;
use Digest::SHA qw(sha256_hex);

my $steps = $ARGV[0] // 80;
# As in victim.h: where a test wants the program to wait, and for which file.
my $waits_at  = $ENV{CKPT_VICTIM_WAITS_AT}  // 0;
my $waits_for = $ENV{CKPT_VICTIM_WAITS_FOR} // '/';

$| = 1;
srand 4711;
my (%kept, @stages, $sum);
for my $number (1 .. 5) {
    my $count = 0;
    push @stages, sub {
        my ($text) = @_;
        $count += length $text;
        $text =~ s/([a-f])(\d)/$2$1/g;
        return sha256_hex($text . $number . $count);
    };
}
open my $file, '>', 'lines' or die "lines: $!";
$file->autoflush(1);
print "ready\n";
for my $step (1 .. $steps) {
    my $text = join ',', map { int rand 1e9 } 1 .. 300;
    $text = $_->($text) for @stages;
    $kept{ substr $text, 0, 6 } = [ $step, reverse split //, $text ];
    delete $kept{ (sort { $kept{$a}[0] <=> $kept{$b}[0] } keys %kept)[0] } if keys %kept > 30;
    $sum = sha256_hex(($sum // '') . join ' ', map { "$_ @{ $kept{$_} }" } sort keys %kept);
    print "step $step $sum\n";
    printf {$file} "%d %s\n", $step, unpack 'H16', pack 'd', rand;
    while ($step == $waits_at && !-e $waits_for) { select undef, undef, undef, 0.001 }
    select undef, undef, undef, 0.01;
}
print "verified\n";
exit 6;
