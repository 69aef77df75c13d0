# A worker in Perl: offload run --worker-jsonl 'perl examples/jsonl/worker.pl' average '[1, 2, 6]'
use strict; use JSON::PP; use IO::Handle; use List::Util 'sum'; use Scalar::Util 'looks_like_number';
open(my $jobs, '<&=', 3); open(my $answers, '>&=', 4); $answers->autoflush(1);
sub say { print $answers encode_json($_[0]), "\n" }
main::say({hello => {tasks => [{name => 'average', idempotent => \1, description => 'The average of numbers', example => [1, 2]}]}});
sub average {
    die "these are no numbers\n" if grep { ref($_) || !looks_like_number($_) } @_;
    my $average = sum(@_) / @_;
    die "the sum is too large\n" unless abs($average) < 9**9**9;    # JSON has no infinity
    return $average;
}
while (my $line = <$jobs>) {
    my $job = decode_json($line);
    my $output = eval { main::average(@{$job->{input}}) };
    main::say({job => $job->{job}, defined $output ? (output => $output) : (error => $@ =~ s/\s+\z//r)});
}
