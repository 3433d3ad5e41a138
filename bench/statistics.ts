/**
 * The arithmetic of the benches: medians, because one stolen time slice must not move a result, and a spread beside each, because
 * a figure without one says nothing. Pure functions.
 */

export type Direction = 'at-most' | 'at-least'

/** Whether a bar is met: yes, no, or the rounds differ more among themselves than the result differs from the target. */
export type Judgement = boolean | 'inconclusive'

/** The value below which the given share of the samples lies, interpolated between neighbours. */
export function quantile(samples: readonly number[], share: number): number {
  const sorted = samples.toSorted((a, b) => a - b)
  const position = (sorted.length - 1) * share
  const below = sorted[Math.floor(position)]
  const above = sorted[Math.ceil(position)]
  if (below === undefined || above === undefined) throw new Error('A quantile needs at least one sample.')
  return below + (above - below) * (position - Math.floor(position))
}

export function median(samples: readonly number[]): number {
  return quantile(samples, 0.5)
}

/** Half the interquartile range: about half of the rounds lie within median ± spread, whatever the outliers did. */
export function spread(samples: readonly number[]): number {
  return (quantile(samples, 0.75) - quantile(samples, 0.25)) / 2
}

export function judge(measured: { value: number; spread: number }, bar: { target: number; direction: Direction }): Judgement {
  const margin = bar.direction === 'at-most' ? bar.target - measured.value : measured.value - bar.target
  if (!Number.isFinite(margin)) return false
  if (measured.spread > Math.abs(margin)) return 'inconclusive'
  return margin >= 0
}
