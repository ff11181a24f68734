//! Meshes of bubbles: cells with three neighbours each, four times as many to an area along the walls of some bubbles as
//! elsewhere. 1.5 edges a vertex, as "hugebubbles" has.
//!
//! The cells are the triangles of a good triangulation: the points of a slightly disturbed lattice of triangles. Cells about
//! a point form a ring of five to seven then, as in a mesh made for a simulation; random points would make rings of three.

use delaunator::Point;

use super::triangulation;
use crate::graph::Graph;

const BUBBLES: u32 = 12;
/// How far fine cells reach on either side of a wall.
const WALL: f64 = 0.02;
/// How far points are moved, in parts of their distance.
const DISTURBANCE: f64 = 0.3;
/// Of a lattice of triangles with sides of 1.
const ROW_HEIGHT: f64 = 0.866_025_403_784_438_6;

struct Bubble {
    centre: (f64, f64),
    radius: f64,
}

pub fn generate(vertices: u32, random: &mut fastrand::Rng) -> Graph {
    let bubble =
        |random: &mut fastrand::Rng| Bubble { centre: (random.f64(), random.f64()), radius: 0.05 + 0.2 * random.f64() };
    let bubbles: Vec<Bubble> = (0..BUBBLES).map(|_| bubble(random)).collect();
    let points = lattice(spacing(vertices, &bubbles), &bubbles, random);
    let (cells, edges) = triangulation::dual(&points);
    Graph::new(cells, edges)
}

fn is_at_wall(bubbles: &[Bubble], x: f64, y: f64) -> bool {
    bubbles.iter().any(|bubble| ((x - bubble.centre.0).hypot(y - bubble.centre.1) - bubble.radius).abs() < WALL)
}

/// The distance of points at the walls that gives about so many triangles: two for each point.
fn spacing(triangles: u32, bubbles: &[Bubble]) -> f64 {
    const SAMPLES: u32 = 256;
    let place = |at: u32| (f64::from(at) + 0.5) / f64::from(SAMPLES);
    let samples = (0..SAMPLES * SAMPLES).map(|at| (place(at / SAMPLES), place(at % SAMPLES)));
    let at_walls = samples.filter(|(x, y)| is_at_wall(bubbles, *x, *y)).count() as f64 / f64::from(SAMPLES * SAMPLES);
    let points = f64::from(triangles) / 2.0;
    ((at_walls + (1.0 - at_walls) / 4.0) / ROW_HEIGHT / points).sqrt()
}

fn lattice(spacing: f64, bubbles: &[Bubble], random: &mut fastrand::Rng) -> Vec<Point> {
    let rows = (1.0 / (spacing * ROW_HEIGHT)) as u32;
    let columns = (1.0 / spacing) as u32;
    let mut points = Vec::new();
    for row in 0..rows {
        for column in 0..columns {
            let x = (f64::from(column) + f64::from(row) / 2.0) * spacing % 1.0;
            let y = f64::from(row) * spacing * ROW_HEIGHT;
            let is_coarse = row % 2 == 0 && column % 2 == 0;
            let is_fine = is_at_wall(bubbles, x, y);
            let reach = DISTURBANCE * spacing * if is_fine { 1.0 } else { 2.0 };
            let (dx, dy) = ((random.f64() - 0.5) * reach, (random.f64() - 0.5) * reach);
            if is_fine || is_coarse {
                points.push(Point { x: x + dx, y: y + dy });
            }
        }
    }
    points
}
