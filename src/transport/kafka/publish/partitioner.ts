/**
 * The partition of a key, as Kafka's own Java producer computes it: murmur2 of the key's bytes, made positive, modulo the
 * number of partitions. Whoever writes the same topic with the Java client puts the same key into the same partition.
 */

/** The partition, from 0, that a key belongs to. */
export function partitionOf(key: Uint8Array, partitions: number): number {
  return (murmur2(key) & 0x7fffffff) % partitions
}

/** MurmurHash2 with Kafka's seed, as a signed 32-bit number. */
export function murmur2(data: Uint8Array): number {
  const { length } = data
  const whole = length - (length % 4)
  let hash = 0x9747b28c ^ length
  for (let i = 0; i < whole; i += 4) {
    let word = byte(data, i) | (byte(data, i + 1) << 8) | (byte(data, i + 2) << 16) | (byte(data, i + 3) << 24)
    word = Math.imul(word, mixer)
    word ^= word >>> 24
    hash = Math.imul(hash, mixer) ^ Math.imul(word, mixer)
  }
  if (length > whole) {
    for (let i = length - 1; i >= whole; i -= 1) hash ^= byte(data, i) << (8 * (i - whole))
    hash = Math.imul(hash, mixer)
  }
  hash ^= hash >>> 13
  hash = Math.imul(hash, mixer)
  return hash ^ (hash >>> 15)
}

const mixer = 0x5bd1e995

function byte(data: Uint8Array, index: number): number {
  return data[index] as number
}
