export const echo = input => input

export const primes = input => {
  const n = Number(input)
  const composite = new Uint8Array(n + 1)
  let count = 0
  let largest = 0
  for (let p = 2; p <= n; p++) {
    if (composite[p]) continue
    count++
    largest = p
    for (let q = p * p; q <= n; q += p) composite[q] = 1
  }
  return JSON.stringify({ count, largest })
}
