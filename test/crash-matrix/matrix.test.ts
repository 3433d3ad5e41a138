import { describe, expect, test } from 'vitest'
import { crashPlaces, crashPointName } from '../../src/testing/faults/crash-places.ts'
import { faultNames, kafkaFaultNames, redisFaultNames } from './faults.ts'
import { allCells, kafkaPlaces, pubsubPlaces, someCells, someKafkaCells } from './matrix.ts'
import { cellName } from './scene.ts'

test('every place of the registry is crossed with every fault that can reach it, in a hundred and fifty cells and more', () => {
  const cells = new Set(allCells.map(cellName))
  for (const place of crashPlaces) {
    const isOnKafka = 'kafka' in place.at
    for (const fault of isOnKafka ? kafkaFaultNames : faultNames)
      expect(cells).toContain(`${crashPointName(place)} × ${fault}${isOnKafka ? ' (Kafka)' : ''}`)
  }
  for (const place of crashPlaces.filter(({ role }) => role === 'command server'))
    for (const fault of redisFaultNames) expect(cells).toContain(`${crashPointName(place)} × ${fault}`)
  expect(cells.size).toBe(allCells.length)
  expect(cells.size).toBeGreaterThanOrEqual(150)
})

test('whatever deals with a broker is played on Kafka too', () => {
  const onKafka = new Set(kafkaPlaces)
  for (const place of crashPlaces.filter(({ at }) => 'publish' in at || 'delivery' in at)) expect(onKafka).toContain(place)
  for (const place of crashPlaces.filter(({ role }) => role === 'relay' || role === 'consumer')) expect(onKafka).toContain(place)
})

test('no cell breaks a Redis that the process of the cell has no connection to', () => {
  const isRedis = (fault: string): boolean => fault.includes('redis')
  const roles = allCells.filter(({ fault }) => isRedis(fault)).map(({ place }) => place.role)
  expect(new Set(roles)).toEqual(new Set(['command server']))
})

test('no two places have one name', () => {
  expect(new Set(crashPlaces.map(crashPointName)).size).toBe(crashPlaces.length)
})

describe('the part of the matrix that is played more often', () => {
  test.each([1, 2, 3])('has every place and every fault in it (seed %i)', (seed) => {
    const cells = someCells(seed)
    expect(new Set(cells.map(({ place }) => place))).toEqual(new Set(pubsubPlaces))
    expect(new Set(cells.map(({ fault }) => fault))).toEqual(new Set([...faultNames, ...redisFaultNames]))
  })

  test.each([1, 2, 3])('has every role and every fault on Kafka in it (seed %i)', (seed) => {
    const cells = someKafkaCells(seed)
    expect(new Set(cells.map(({ place }) => place.role))).toEqual(new Set(kafkaPlaces.map(({ role }) => role)))
    expect(new Set(cells.map(({ fault }) => fault))).toEqual(new Set(kafkaFaultNames))
  })
})
