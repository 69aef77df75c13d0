//! `mandelbrot` draws a part of the Mandelbrot set as a PNG file. It is work that can be seen: a page of tiles is so many jobs.
//!
//! `x` and `y` are the middle of the picture in the complex plane, and `scale` is how much of the plane its width shows. `y` grows
//! upwards. Points of the set are black. The colour of any other point says after how many steps it left the circle of radius
//! 2: the colours repeat every 128 steps.

use super::pixels::{Channels, Pixels};
use super::whole::whole;
use crate::context::TaskContext;
use crate::limits::{
    MANDELBROT_CENTER_MAX, MANDELBROT_ITERATIONS_MAX, MANDELBROT_SCALE_MAX, MANDELBROT_SCALE_MIN,
    MANDELBROT_SIDE_MAX,
};
use crate::task::{Output, Task, TaskError};
use serde::Deserialize;
use std::ops::RangeInclusive;

/// After how many steps the colours repeat.
const COLORS: usize = 128;

type Rgb = [u8; 3];
const BLACK: Rgb = [0, 0, 0];

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct View {
    x: f64,
    y: f64,
    scale: f64,
    #[serde(deserialize_with = "whole")]
    width: u64,
    #[serde(deserialize_with = "whole")]
    height: u64,
    #[serde(deserialize_with = "whole")]
    iterations: u64,
}

pub(super) fn task() -> Task {
    Task::raw("mandelbrot", |input, context| draw(&input.json()?, context))
}

fn draw(view: &View, context: &mut TaskContext<'_>) -> Result<Output, TaskError> {
    view.check()?;
    let colors = palette();
    let (width, height) = (usize::try_from(view.width)?, usize::try_from(view.height)?);
    let mut samples = Vec::with_capacity(3 * width * height);
    for row in 0..view.height {
        for column in 0..view.width {
            let (x, y) = view.point(column, row);
            samples.extend(color_of(steps_until_outside(x, y, view.iterations), &colors));
        }
        context.progress(row + 1, view.height);
    }
    Pixels { width, height, channels: Channels::Rgb, samples }.into_png()
}

impl View {
    fn check(&self) -> Result<(), TaskError> {
        let center = -MANDELBROT_CENTER_MAX..=MANDELBROT_CENTER_MAX;
        bounded("x", self.x, center.clone())?;
        bounded("y", self.y, center)?;
        bounded("scale", self.scale, MANDELBROT_SCALE_MIN..=MANDELBROT_SCALE_MAX)?;
        bounded("width", self.width, 1..=MANDELBROT_SIDE_MAX)?;
        bounded("height", self.height, 1..=MANDELBROT_SIDE_MAX)?;
        bounded("iterations", self.iterations, 1..=MANDELBROT_ITERATIONS_MAX)
    }

    /// Where the middle of a pixel is in the plane.
    fn point(&self, column: u64, row: u64) -> (f64, f64) {
        let step = self.scale / self.width as f64;
        let right = column as f64 + 0.5 - self.width as f64 / 2.0;
        let up = self.height as f64 / 2.0 - row as f64 - 0.5;
        (self.x + right * step, self.y + up * step)
    }
}

fn bounded<N: Copy + PartialOrd + std::fmt::Display>(
    name: &str,
    value: N,
    bounds: RangeInclusive<N>,
) -> Result<(), TaskError> {
    if !bounds.contains(&value) {
        let (least, most) = bounds.into_inner();
        return Err(TaskError::new(format_args!("{name} is {value}, it must be {least} to {most}")));
    }
    Ok(())
}

/// After how many steps of z -> z^2 + c, from 0, z is farther than 2 from 0; `None` if not within `iterations`.
fn steps_until_outside(x: f64, y: f64, iterations: u64) -> Option<u64> {
    if is_known_inside(x, y) {
        return None;
    }
    let (mut real, mut imaginary) = (0.0_f64, 0.0_f64);
    for step in 1..=iterations {
        (real, imaginary) = (real * real - imaginary * imaginary + x, 2.0 * real * imaginary + y);
        if real * real + imaginary * imaginary > 4.0 {
            return Some(step);
        }
    }
    None
}

/// The large heart and the circle left of it are most of the set. No step is needed there.
fn is_known_inside(x: f64, y: f64) -> bool {
    let from_cusp = x - 0.25;
    let q = from_cusp * from_cusp + y * y;
    let is_in_heart = q * (q + from_cusp) < 0.25 * y * y;
    let is_in_circle = (x + 1.0) * (x + 1.0) + y * y < 0.0625;
    is_in_heart || is_in_circle
}

fn color_of(steps: Option<u64>, colors: &[Rgb; COLORS]) -> Rgb {
    steps.map_or(BLACK, |steps| colors[(steps % COLORS as u64) as usize])
}

/// From black through blue, white and orange to black again.
fn palette() -> [Rgb; COLORS] {
    std::array::from_fn(|place| {
        let t = place as f64 / COLORS as f64;
        let rest = 1.0 - t;
        let red = 9.0 * rest * t * t * t;
        let green = 15.0 * rest * rest * t * t;
        let blue = 8.5 * rest * rest * rest * t;
        [red, green, blue].map(|part| (part * 255.0).round() as u8)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_supervisor::answer_bytes;
    use serde_json::{Value, json};

    fn view(x: f64, y: f64, scale: f64, side: u64, iterations: u64) -> Value {
        json!({"x": x, "y": y, "scale": scale, "width": side, "height": side, "iterations": iterations})
    }

    /// The colours of the pixels, row after row from the top.
    fn drawn(view: &Value) -> Vec<Rgb> {
        let file = answer_bytes("mandelbrot", view.to_string()).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        let mut samples = vec![0; reader.output_buffer_size().unwrap()];
        let frame = reader.next_frame(&mut samples).unwrap();
        assert_eq!(
            (u64::from(frame.width), u64::from(frame.height)),
            (pixels(view, "width"), pixels(view, "height"))
        );
        samples.chunks_exact(3).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect()
    }

    fn pixels(view: &Value, side: &str) -> u64 {
        view[side].as_u64().unwrap()
    }

    fn color(steps: usize) -> Rgb {
        palette()[steps]
    }

    #[test]
    fn known_points_have_their_colours() {
        let point = |x, y| drawn(&view(x, y, 1e-6, 1, 1000))[0];
        for inside in [(0.0, 0.0), (-1.0, 0.0), (-0.12, 0.75), (0.25 - 1e-3, 0.0), (-1.999, 0.0)] {
            assert_eq!(point(inside.0, inside.1), BLACK, "{inside:?}");
        }
        // From 0: 1, 2, 5, which is the first over 2.
        assert_eq!(point(1.0, 0.0), color(3));
        assert_eq!(point(3.0, 0.0), color(1));
        assert_ne!(color(3), BLACK);
    }

    #[test]
    fn the_picture_is_right_of_x_and_above_y() {
        // The middle of the left pixels is at -2.5, that of the right ones at 0.5; of the upper ones at 1.5.
        let [upper_left, upper_right, lower_left, lower_right] = drawn(&view(-1.0, 0.75, 3.0, 2, 100))[..]
        else {
            panic!("four pixels")
        };
        assert_eq!(lower_left, color(steps_until_outside(-1.75, 0.0, 100).unwrap_or(0) as usize));
        assert_eq!(upper_left, color(steps_until_outside(-1.75, 1.5, 100).unwrap() as usize));
        assert_eq!(upper_right, color(steps_until_outside(-0.25, 1.5, 100).unwrap() as usize));
        assert_eq!(lower_right, BLACK);
    }

    #[test]
    fn the_shortcut_is_taken_only_inside() {
        for step in 0..400 {
            let (x, y) = (-2.0 + f64::from(step % 20) * 0.13, f64::from(step / 20) * 0.06);
            if is_known_inside(x, y) {
                let mut z = (0.0_f64, 0.0_f64);
                for _ in 0..10_000 {
                    z = (z.0 * z.0 - z.1 * z.1 + x, 2.0 * z.0 * z.1 + y);
                }
                assert!(z.0.hypot(z.1) <= 2.0, "{x} {y}");
            }
        }
    }

    #[test]
    fn a_bound_that_is_broken_is_named() {
        let refusal = |view: Value| answer_bytes("mandelbrot", view.to_string()).unwrap_err();
        assert_eq!(refusal(view(0.0, 0.0, 3.0, 4097, 10)), "width is 4097, it must be 1 to 4096");
        assert_eq!(refusal(view(0.0, 0.0, 3.0, 10, 10_001)), "iterations is 10001, it must be 1 to 10000");
        assert_eq!(refusal(view(0.0, 0.0, 0.0, 10, 10)), "scale is 0, it must be 0.000000000001 to 16");
        assert_eq!(refusal(view(-4.5, 0.0, 1.0, 10, 10)), "x is -4.5, it must be -4 to 4");
        let mut more = view(0.0, 0.0, 3.0, 1, 1);
        more["depth"] = json!(1);
        assert!(refusal(more).contains("unknown field `depth`"));
    }

    #[test]
    fn whole_numbers_may_have_a_point() {
        let text = r#"{"x":0,"y":0,"scale":3,"width":2.0,"height":1e0,"iterations":10.0}"#;
        let plain = r#"{"x":0,"y":0,"scale":3,"width":2,"height":1,"iterations":10}"#;
        assert_eq!(answer_bytes("mandelbrot", text), answer_bytes("mandelbrot", plain));
        assert_eq!(drawn(&serde_json::from_str(plain).unwrap()).len(), 2);
    }
}
